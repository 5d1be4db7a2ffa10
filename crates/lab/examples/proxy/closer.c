/* The least that can be done with connections: each is taken and closed at once, by one thread, unread and unanswered. What an
 * attempt costs the machine at least, wherever it goes. Usage: closer LISTEN-PORT, on 127.0.0.1. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
  if (count != 2) return 2;
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  at.sin_port = htons(atoi(words[1]));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) return 1;
  for (;;) close(accept(listener, NULL, NULL));
}
