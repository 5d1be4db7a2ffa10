/* The least that a relay can be: one thread, epoll, one buffer, no options but TCP_NODELAY, nothing known of what it carries.
 * The floor that the proxies are measured against. Usage: relay LISTEN-PORT SERVER-PORT, both on 127.0.0.1. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 65536
#define CHUNK 32768

/* What one socket has read and its peer has not taken. */
struct end {
  int fd, peer;
  char *held;
  size_t from, to;
};
static struct end ends[MOST];
static int poller;

static void watch(int fd, int op, int wants_out) {
  struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.fd = fd};
  epoll_ctl(poller, op, fd, &event);
}

static void drop(int fd) {
  int peer = ends[fd].peer;
  free(ends[fd].held);
  free(ends[peer].held);
  memset(&ends[fd], 0, sizeof ends[fd]);
  memset(&ends[peer], 0, sizeof ends[peer]);
  close(fd);
  close(peer);
}

/* From one socket to its peer, as long as both let it. Nothing more is read while something is held. */
static void pass(int fd) {
  static char buffer[CHUNK];
  struct end *end = &ends[fd];
  for (int turn = 0; turn < 8; turn++) {
    char *bytes = end->held ? end->held + end->from : buffer;
    ssize_t count = end->held ? (ssize_t)(end->to - end->from) : recv(fd, buffer, CHUNK, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) {
      drop(fd);
      return;
    }
    if (count < 0) return;
    ssize_t sent = send(end->peer, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
      drop(fd);
      return;
    }
    if (sent < 0) sent = 0;
    if (sent == count) {
      if (end->held) {
        free(end->held);
        end->held = NULL;
        watch(end->peer, EPOLL_CTL_MOD, 0);
        watch(fd, EPOLL_CTL_MOD, 0);
      }
      continue;
    }
    if (end->held) {
      end->from += sent;
      return;
    }
    end->held = malloc(CHUNK);
    memcpy(end->held, buffer + sent, count - sent);
    end->from = 0;
    end->to = count - sent;
    struct epoll_event quiet = {.events = 0, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, fd, &quiet);
    watch(end->peer, EPOLL_CTL_MOD, 1);
    return;
  }
}

int main(int count, char **words) {
  if (count != 3) return 2;
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, server = at;
  at.sin_port = htons(atoi(words[1]));
  server.sin_port = htons(atoi(words[2]));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) return 1;
  poller = epoll_create1(0);
  watch(listener, EPOLL_CTL_ADD, 0);
  struct epoll_event events[256];
  for (;;) {
    int ready = epoll_wait(poller, events, 256, -1);
    for (int n = 0; n < ready; n++) {
      int fd = events[n].data.fd;
      if (fd == listener) {
        int client = accept(listener, NULL, NULL), up = socket(AF_INET, SOCK_STREAM, 0);
        if (client < 0 || up < 0 || client >= MOST || up >= MOST || connect(up, (struct sockaddr *)&server, sizeof server)) {
          close(client);
          close(up);
          continue;
        }
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        ends[client] = (struct end){.fd = client, .peer = up};
        ends[up] = (struct end){.fd = up, .peer = client};
        watch(client, EPOLL_CTL_ADD, 0);
        watch(up, EPOLL_CTL_ADD, 0);
        continue;
      }
      if (ends[fd].fd != fd) continue;
      if ((events[n].events & EPOLLOUT) && ends[ends[fd].peer].held) pass(ends[fd].peer);
      if (ends[fd].fd == fd && (events[n].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) pass(fd);
    }
  }
}
