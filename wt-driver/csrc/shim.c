/*
 * WiredTiger's methods as plain functions. A method table, not symbols, is the engine's ABI, and keys are passed by
 * variable arguments: both are only right when compiled against the installed header.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <wiredtiger.h>

extern void bw_engine_says(int is_error, int code, const char *text);

static int
on_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error, const char *message)
{
	(void)handler;
	(void)session;
	bw_engine_says(1, error, message);
	return (0);
}

static int
on_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message)
{
	(void)handler;
	(void)session;
	bw_engine_says(0, 0, message);
	return (0);
}

/* Zeroed where nothing is said: newer versions have more callbacks than older ones. */
static WT_EVENT_HANDLER events = { .handle_error = on_error, .handle_message = on_message };

const char *bw_version(int *major, int *minor, int *patch) { return (wiredtiger_version(major, minor, patch)); }
const char *bw_strerror(int code) { return (wiredtiger_strerror(code)); }
int bw_code_rollback(void) { return (WT_ROLLBACK); }
int bw_code_not_found(void) { return (WT_NOTFOUND); }
int bw_code_panic(void) { return (WT_PANIC); }

int
bw_open(const char *home, const char *config, WT_CONNECTION **out)
{
	return (wiredtiger_open(home, &events, config, out));
}

int bw_close(WT_CONNECTION *c) { return (c->close(c, NULL)); }
int bw_reconfigure(WT_CONNECTION *c, const char *config) { return (c->reconfigure(c, config)); }

int
bw_session(WT_CONNECTION *c, WT_SESSION **out)
{
	return (c->open_session(c, NULL, "isolation=snapshot", out));
}

int bw_session_close(WT_SESSION *s) { return (s->close(s, NULL)); }
int bw_create(WT_SESSION *s, const char *uri, const char *config) { return (s->create(s, uri, config)); }
int bw_begin(WT_SESSION *s) { return (s->begin_transaction(s, NULL)); }
int bw_commit(WT_SESSION *s) { return (s->commit_transaction(s, NULL)); }

/* The timestamp of what the open transaction writes. */
int
bw_stamp(WT_SESSION *s, uint64_t at)
{
	char config[64];

	(void)snprintf(config, sizeof(config), "commit_timestamp=%" PRIx64, at);
	return (s->timestamp_transaction(s, config));
}

/* No checkpoint writes what is newer than `stable`, and nothing that was in force at `oldest` may be forgotten. */
int
bw_confirm(WT_CONNECTION *c, uint64_t stable, uint64_t oldest)
{
	char config[128];

	(void)snprintf(config, sizeof(config), "stable_timestamp=%" PRIx64 ",oldest_timestamp=%" PRIx64, stable, oldest);
	return (c->set_timestamp(c, config));
}

int bw_rollback(WT_SESSION *s) { return (s->rollback_transaction(s, NULL)); }
int bw_checkpoint(WT_SESSION *s) { return (s->checkpoint(s, NULL)); }
int bw_log_flush(WT_SESSION *s, const char *config) { return (s->log_flush(s, config)); }

int
bw_cursor(WT_SESSION *s, const char *uri, WT_CURSOR **out)
{
	return (s->open_cursor(s, uri, NULL, NULL, out));
}

int bw_cursor_close(WT_CURSOR *c) { return (c->close(c)); }
int bw_cursor_reset(WT_CURSOR *c) { return (c->reset(c)); }

/* Documents: key_format=q, value_format=u. */
int
bw_document_put(WT_CURSOR *c, int64_t id, const void *data, size_t size)
{
	WT_ITEM value;

	memset(&value, 0, sizeof(value));
	value.data = data;
	value.size = size;
	c->set_key(c, id);
	c->set_value(c, &value);
	return (c->insert(c));
}

int
bw_document_size(WT_CURSOR *c, int64_t id, size_t *size)
{
	WT_ITEM value;
	int ret;

	c->set_key(c, id);
	if ((ret = c->search(c)) == 0 && (ret = c->get_value(c, &value)) == 0)
		*size = value.size;
	return (ret);
}

/* The largest id. */
int
bw_document_last(WT_CURSOR *c, int64_t *id)
{
	int ret;

	if ((ret = c->prev(c)) != 0)
		return (ret);
	return (c->get_key(c, id));
}

int
bw_document_remove(WT_CURSOR *c, int64_t id)
{
	c->set_key(c, id);
	return (c->remove(c));
}

/* The index: key_format=u, value_format=u with nothing in it. */
int
bw_entry_put(WT_CURSOR *c, const void *data, size_t size)
{
	WT_ITEM key, none;

	memset(&key, 0, sizeof(key));
	memset(&none, 0, sizeof(none));
	key.data = data;
	key.size = size;
	none.data = "";
	c->set_key(c, &key);
	c->set_value(c, &none);
	return (c->insert(c));
}

int
bw_entry_remove(WT_CURSOR *c, const void *data, size_t size)
{
	WT_ITEM key;

	memset(&key, 0, sizeof(key));
	key.data = data;
	key.size = size;
	c->set_key(c, &key);
	return (c->remove(c));
}

/* The first entry behind `data`, copied over it; it must have the same size. */
int
bw_entry_after(WT_CURSOR *c, void *data, size_t size)
{
	WT_ITEM key;
	int exact, ret;

	memset(&key, 0, sizeof(key));
	key.data = data;
	key.size = size;
	c->set_key(c, &key);
	if ((ret = c->search_near(c, &exact)) != 0)
		return (ret);
	if (exact <= 0 && (ret = c->next(c)) != 0)
		return (ret);
	if ((ret = c->get_key(c, &key)) != 0)
		return (ret);
	if (key.size != size)
		return (WT_NOTFOUND);
	memcpy(data, key.data, size);
	return (0);
}

int
bw_statistic_next(WT_CURSOR *c, const char **description, int64_t *value)
{
	const char *printable;
	int ret;

	if ((ret = c->next(c)) != 0)
		return (ret);
	return (c->get_value(c, description, &printable, value));
}
