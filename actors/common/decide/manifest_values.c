/* manifest_values.c -- reading scalars and maps as the table of fields declares them. */
#include "actors/common/decide/manifest_private.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 64 /* keys that one map of the table may have */

static bool
is_word(const char *text, const char *more)
{
	for (const char *c = text; *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
		      (*c >= '0' && *c <= '9') || strchr(more, *c)))
			return false;
	return *text != '\0';
}

bool
manifest_is_word(const char *text)
{
	return is_word(text, "");
}

static bool
is_printable(const char *text)
{
	for (const char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
			return false;
	return true;
}

static const char *
port_read(const char *text, uint16_t *ret_port)
{
	char *end;
	unsigned long port;

	if (!is_word(text, "") || *text < '0' || *text > '9' || strlen(text) > 5)
		return "must end in a port number";
	port = strtoul(text, &end, 10);
	if (*end || port == 0 || port > 65535)
		return "must end in a port number from 1 to 65535";
	*ret_port = (uint16_t)port;
	return NULL;
}

const char *
manifest_addr_parse(const char *text, struct manifest_addr *ret_addr)
{
	struct manifest_addr a = {.port = 0};
	const char *host = text, *end, *colon, *why;
	bool v6 = *text == '[';
	struct in6_addr in6;

	if (v6) {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || end[1] != ':')
			return "must be host:port, with an IPv6 address in brackets";
		colon = end + 1;
	} else {
		end = colon = strchr(text, ':');
		if (!colon)
			return "must be host:port: it has no port";
		if (strchr(colon + 1, ':'))
			return "must be host:port, with an IPv6 address in brackets";
	}
	if (end == host)
		return "must be host:port: it has no host";
	if ((size_t)(end - host) > MANIFEST_HOST_MAX)
		return "has a host of more than 79 bytes";
	memcpy(a.host, host, (size_t)(end - host));
	if (v6 ? inet_pton(AF_INET6, a.host, &in6) != 1 : !is_word(a.host, ".-_"))
		return "has a host that is neither a name nor an address";
	why = port_read(colon + 1, &a.port);
	if (why)
		return why;
	*ret_addr = a;
	return NULL;
}

bool
manifest_addr_is_numeric(const struct manifest_addr *a)
{
	struct in6_addr in6;
	struct in_addr in;

	return inet_pton(AF_INET, a->host, &in) == 1 || inet_pton(AF_INET6, a->host, &in6) == 1;
}

const char *
manifest_url_parse(const char *text, struct manifest_addr *ret_addr, bool *ret_https)
{
	char authority[MANIFEST_ENDPOINT_MAX + 1];
	size_t len;

	*ret_https = strncmp(text, "https://", 8) == 0;
	if (!*ret_https && strncmp(text, "http://", 7) != 0)
		return "must be http://host:port or https://host:port";
	text += *ret_https ? 8 : 7;
	len = strlen(text);
	if (len > MANIFEST_ENDPOINT_MAX)
		return "has more than 127 bytes";
	memcpy(authority, text, len + 1);
	if (len > 0 && authority[len - 1] == '/')
		authority[len - 1] = '\0';
	if (strchr(authority, '/'))
		return "must be http://host:port or https://host:port without a path";
	return manifest_addr_parse(authority, ret_addr);
}

/* "bind:tcp://address:port"; ours to bind, so the address is one of this machine. */
static const char *
bound_parse(const char *text, unsigned rank, char ret_endpoint[MANIFEST_ENDPOINT_MAX + 1])
{
	struct manifest_addr a;
	const char *why;

	text += strlen(MANIFEST_BIND);
	if (strncmp(text, "tcp://", 6) != 0)
		return "must be bind:tcp://address:port where the worker connects to us";
	text += 6;
	if (strncmp(text, "*:", 2) == 0) {
		char any[MANIFEST_ENDPOINT_MAX + 1];

		snprintf(any, sizeof(any), "0.0.0.0%s", text + 1);
		why = manifest_addr_parse(any, &a);
		strcpy(a.host, "*");
	} else {
		why = manifest_addr_parse(text, &a);
		if (!why && !manifest_addr_is_numeric(&a))
			return "must be bind:tcp:// and an IP address of this machine, or '*'";
	}
	if (why)
		return why;
	if (a.port + rank > 65535)
		return "has a port that leaves no room for the ranks";
	snprintf(ret_endpoint, MANIFEST_ENDPOINT_MAX + 1,
		 strchr(a.host, ':') ? MANIFEST_BIND "tcp://[%s]:%u" : MANIFEST_BIND "tcp://%s:%u",
		 a.host, a.port + rank);
	return NULL;
}

const char *
manifest_endpoint_parse(const char *text, unsigned rank, bool may_bind,
			char ret_endpoint[MANIFEST_ENDPOINT_MAX + 1])
{
	struct manifest_addr a;
	const char *why;
	int n;

	if (strlen(text) > MANIFEST_ENDPOINT_MAX)
		return "has more than 127 bytes";
	if (strncmp(text, MANIFEST_BIND, strlen(MANIFEST_BIND)) == 0)
		return may_bind ? bound_parse(text, rank, ret_endpoint)
				: "may not be bound here: tcp://host:port or ipc://path";
	if (strncmp(text, "ipc://", 6) == 0) {
		if (rank > 0)
			return "must be tcp:// where there are several ranks";
		if (text[6] == '\0' || strlen(text + 6) > 107 || !is_printable(text))
			return "must be ipc:// and a path of at most 107 bytes";
		strcpy(ret_endpoint, text);
		return NULL;
	}
	if (strncmp(text, "tcp://", 6) != 0)
		return "must be tcp://host:port or ipc://path";
	if (text[6] == '*')
		return "must name the worker's host: '*' is what the worker binds (bind:tcp://* is "
		       "for workers that connect to us)";
	why = manifest_addr_parse(text + 6, &a);
	if (why)
		return why;
	if (a.port + rank > 65535)
		return "has a port that leaves no room for the ranks";
	n = snprintf(ret_endpoint, MANIFEST_ENDPOINT_MAX + 1,
		     strchr(a.host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", a.host, a.port + rank);
	return n > MANIFEST_ENDPOINT_MAX ? "has more than 127 bytes" : NULL;
}

const char *
manifest_endpoint_host(const char *endpoint, char ret_host[MANIFEST_HOST_MAX + 1])
{
	char rank0[MANIFEST_ENDPOINT_MAX + 1];
	struct manifest_addr a;
	const char *why = manifest_endpoint_parse(endpoint, 0, false, rank0);

	if (!why && strncmp(rank0, "tcp://", 6) != 0)
		why = "is no address of a host";
	if (!why)
		why = manifest_addr_parse(rank0 + 6, &a);
	if (!why)
		memcpy(ret_host, a.host, sizeof(a.host));
	return why;
}

const char *
manifest_socket_parse(const char *path, char ret_path[MANIFEST_SOCKET_MAX + 1])
{
	size_t len = strlen(path);

	if (path[0] != '/' || path[len - 1] == '/')
		return "must be unix: and an absolute path of a file";
	if (len > MANIFEST_SOCKET_MAX)
		return "has a path of more than 107 bytes";
	if (!is_printable(path))
		return "has a path with characters that are not printable";
	memcpy(ret_path, path, len + 1);
	return NULL;
}

const char *
manifest_network_parse(const char *text, struct manifest_network *ret)
{
	struct manifest_network n = {.bits = 128};
	char host[64];
	size_t len = strcspn(text, "/");
	unsigned long most, bits;
	char *end;

	if (len >= sizeof(host))
		return "must be an IP address or a network such as 10.0.0.0/8";
	memcpy(host, text, len);
	host[len] = '\0';
	if (inet_pton(AF_INET, host, n.addr + 12) == 1) {
		n.addr[10] = n.addr[11] = 0xff;
		most = 32;
	} else if (inet_pton(AF_INET6, host, n.addr) == 1) {
		most = 128;
	} else {
		return "must be an IP address or a network such as 10.0.0.0/8";
	}
	if (text[len] == '/') {
		bits = strtoul(text + len + 1, &end, 10);
		if (text[len + 1] < '0' || text[len + 1] > '9' || *end || bits > most)
			return most == 32 ? "must have a prefix of 0 to 32 bits"
					  : "must have a prefix of 0 to 128 bits";
		n.bits = (uint8_t)(128 - most + bits);
	}
	for (unsigned i = n.bits; i < 128; i++)
		if (n.addr[i / 8] & (0x80 >> i % 8))
			return "has bits behind its prefix";
	*ret = n;
	return NULL;
}

/* ---- amounts, as people write them ---- */

static void
seconds_print(char *buf, size_t cap, double s)
{
	if (s == 0)
		snprintf(buf, cap, "0s");
	else if (s >= 1)
		snprintf(buf, cap, "%gs", s);
	else
		snprintf(buf, cap, "%gms", s * 1000);
}

static void
bytes_print(char *buf, size_t cap, double bytes)
{
	if (bytes >= 1073741824)
		snprintf(buf, cap, "%gGiB", bytes / 1073741824);
	else if (bytes >= 1048576)
		snprintf(buf, cap, "%gMiB", bytes / 1048576);
	else
		snprintf(buf, cap, "%gKiB", bytes / 1024);
}

static void
count_print(char *buf, size_t cap, double n)
{
	snprintf(buf, cap, "%.0f", n);
}

static bool
in_bounds(const struct manifest_field *f, double v, void (*print)(char *, size_t, double),
	  char *why, size_t cap)
{
	char min[32], max[32];

	if (v >= f->min && v <= f->max)
		return true;
	print(min, sizeof(min), f->min);
	print(max, sizeof(max), f->max);
	snprintf(why, cap, "must be from %s to %s", min, max);
	return false;
}

static void
store(const struct manifest_field *f, void *base, const void *value, size_t size)
{
	if (f->size == size)
		memcpy((char *)base + f->offset, value, size);
}

static void
store_u64(const struct manifest_field *f, void *base, uint64_t v)
{
	uint32_t narrow = (uint32_t)v; /* the table's bounds keep 32-bit fields in range */

	store(f, base, &v, sizeof(v));
	store(f, base, &narrow, sizeof(narrow));
}

static void
store_text(const struct manifest_field *f, void *base, const char *text)
{
	if (f->size > 0) /* lengths were checked against the field's place */
		memcpy((char *)base + f->offset, text, strlen(text) + 1);
}

/* Which of "a|b|c" is text: its place, or -1. */
static int
choice_index(const char *choices, const char *text)
{
	size_t len = strlen(text);
	int i = 0;

	for (const char *c = choices; c; i++) {
		size_t n = strcspn(c, "|");

		if (n == len && memcmp(c, text, n) == 0)
			return i;
		c = c[n] ? c + n + 1 : NULL;
	}
	return -1;
}

#define CHOICES_MAX 16

static size_t
choices_split(const char *choices, char *copy, size_t cap, const char *names[CHOICES_MAX])
{
	size_t n = 0;

	snprintf(copy, cap, "%s", choices);
	for (char *c = copy, *rest; c && n < CHOICES_MAX; c = rest) {
		rest = strchr(c, '|');
		if (rest)
			*rest++ = '\0';
		names[n++] = c;
	}
	return n;
}

/* The choice that was meant, or NULL. */
static const char *
choice_near(const struct manifest_field *f, const struct yaml_node *node)
{
	static _Thread_local char copy[256];
	const char *names[CHOICES_MAX];

	if (!f->choices || node->kind != YAML_KIND_SCALAR)
		return NULL;
	return yaml_nearest(node->text, names,
			    choices_split(f->choices, copy, sizeof(copy), names));
}

static bool
choice_read(const struct manifest_field *f, const char *text, void *base, char *why, size_t cap)
{
	int at = choice_index(f->choices, text);
	const char *names[CHOICES_MAX], *near;
	size_t n, used = 0;
	char copy[256];

	if (at >= 0) {
		int value = f->base + at;

		store(f, base, &value, sizeof(value));
		return true;
	}
	if (f->later && choice_index(f->later, text) >= 0) {
		snprintf(why, cap, "\"%s\" is not supported yet", text);
		return false;
	}
	n = choices_split(f->choices, copy, sizeof(copy), names);
	near = yaml_nearest(text, names, n);
	if (near) {
		snprintf(why, cap, "must not be \"%.60s\"; did you mean \"%s\"?", text, near);
		return false;
	}
	used = (size_t)snprintf(why, cap, "must be %s", n > 1 ? "one of" : "");
	for (size_t i = 0; i < n && used < cap; i++)
		used += (size_t)snprintf(why + used, cap - used, "%s%s",
					 i       ? ", "
					 : n > 1 ? " "
						 : "",
					 names[i]);
	return false;
}

/* One line of text: what may stand in a header, a claim or a pattern. */
static bool
is_line(const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	return text[0] != ' ' && text[0] != '\0' && text[strlen(text) - 1] != ' ';
}

static bool
string_fits(const struct manifest_field *f, const char *text, char *why, size_t cap)
{
	bool here = f->type == MANIFEST_T_STRING || f->type == MANIFEST_T_HEADER;
	size_t max = here && f->size > 0 ? f->size - 1 : MANIFEST_EXPRESSION_MAX;

	if (strlen(text) > max) {
		snprintf(why, cap, "has more than %zu bytes", max);
		return false;
	}
	if (f->type == MANIFEST_T_STRING && !is_line(text)) {
		snprintf(why, cap, "must be one line without spaces around it");
		return false;
	}
	if (f->type == MANIFEST_T_HEADER && !is_word(text, "!#$%&'*+-.^_`|~")) {
		snprintf(why, cap, "must be the name of a header field, not \"%.60s\"", text);
		return false;
	}
	return true;
}

static void
store_lower(const struct manifest_field *f, void *base, const char *text)
{
	char *to = (char *)base + f->offset;

	if (f->size == 0)
		return;
	for (; *text; text++)
		*to++ = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
	*to = '\0';
}

/* Plain digits, perhaps a fraction of at most `digits`: as that many decimal digits' units. */
static const char *
decimal_read(const struct yaml_node *node, unsigned digits, uint64_t *ret)
{
	const char *c = node->text;
	uint64_t n = 0;
	unsigned after = 0;
	bool point = false;

	if (node->kind != YAML_KIND_SCALAR || node->quoted || *c < '0' || *c > '9' ||
	    (c[0] == '0' && c[1] >= '0' && c[1] <= '9') || strlen(c) > 16)
		return "must be a decimal number such as 0.25";
	for (; *c; c++) {
		if (*c == '.' && !point && c[1] != '\0') {
			point = true;
			continue;
		}
		if (*c < '0' || *c > '9')
			return "must be a decimal number such as 0.25";
		if (point && after++ == digits)
			return "has too many digits behind the point: at most 6";
		n = n * 10 + (uint64_t)(*c - '0');
	}
	for (; after < digits; after++) {
		if (n > UINT64_MAX / 10)
			return "is too large";
		n *= 10;
	}
	*ret = n;
	return NULL;
}

static void
decimal_print(char *buf, size_t cap, double v)
{
	snprintf(buf, cap, "%.0f", v);
}

static const char *
expression_read(const struct manifest_field *f, const struct yaml_node *node, void *base)
{
	struct manifest_expression *to = (void *)((char *)base + f->offset);

	if (f->size == 0)
		return NULL;
	if (to->text)
		return "is given twice";
	to->text = strdup(node->text);
	to->line = node->line;
	to->column = node->column;
	return to->text ? NULL : "cannot be kept: there is no memory";
}

static bool
text_fits(const struct manifest_field *f, const char *text, char *why, size_t cap)
{
	size_t max = f->size > 0		       ? f->size - 1
		     : f->type == MANIFEST_T_NAME ? MANIFEST_NAME_MAX
						  : MANIFEST_ENDPOINT_MAX;

	if (strlen(text) > max) {
		snprintf(why, cap, "has more than %zu bytes", max);
		return false;
	}
	if (f->type == MANIFEST_T_NAME && (!is_word(text, "-._") || strchr("-._", text[0]))) {
		snprintf(why, cap,
			 "must be a name of letters, digits, '-', '.' and '_', not \"%.60s\"",
			 text);
		return false;
	}
	if (!is_printable(text)) {
		snprintf(why, cap, "must have no spaces, quotes or backslashes");
		return false;
	}
	if (f->type == MANIFEST_T_PATH && text[0] != '/') {
		snprintf(why, cap, "must begin with '/'");
		return false;
	}
	return true;
}

bool
manifest_value_read(const struct manifest_field *f, const struct yaml_node *node, void *base,
		    char *why, size_t cap)
{
	const char *wrong = NULL, *text;
	struct manifest_addr addr;
	uint64_t n = 0;
	double s = 0;
	bool b;

	switch (f->type) {
	case MANIFEST_T_BOOL:
		if (yaml_get_bool(node, &b, &wrong) == 0)
			store(f, base, &b, sizeof(b));
		break;
	case MANIFEST_T_COUNT:
		if (yaml_get_u64(node, &n, &wrong) < 0)
			break;
		if (!in_bounds(f, (double)n, count_print, why, cap))
			return false;
		store_u64(f, base, n);
		break;
	case MANIFEST_T_DURATION:
		if (yaml_get_duration_ns(node, &n, &wrong) < 0)
			break;
		if (!in_bounds(f, (double)n / 1e9, seconds_print, why, cap))
			return false;
		store_u64(f, base, n);
		break;
	case MANIFEST_T_SECONDS:
		if (yaml_get_duration_s(node, &s, &wrong) < 0)
			break;
		if (!in_bounds(f, s, seconds_print, why, cap))
			return false;
		store(f, base, &s, sizeof(s));
		break;
	case MANIFEST_T_SIZE:
		if (yaml_get_size_bytes(node, &n, &wrong) < 0)
			break;
		if (!in_bounds(f, (double)n, bytes_print, why, cap))
			return false;
		store_u64(f, base, n);
		break;
	case MANIFEST_T_CHOICE:
		if (yaml_get_text(node, &text, &wrong) == 0)
			return choice_read(f, text, base, why, cap);
		break;
	case MANIFEST_T_ADDR:
		if (yaml_get_text(node, &text, &wrong) < 0)
			break;
		wrong = manifest_addr_parse(text, &addr);
		if (!wrong && !manifest_addr_is_numeric(&addr))
			wrong = "must be an IP address and a port";
		if (!wrong)
			store(f, base, &addr, sizeof(addr));
		break;
	case MANIFEST_T_NAME:
	case MANIFEST_T_TEXT:
	case MANIFEST_T_PATH:
		if (yaml_get_text(node, &text, &wrong) < 0)
			break;
		if (!text_fits(f, text, why, cap))
			return false;
		store_text(f, base, text);
		break;
	case MANIFEST_T_STRING:
	case MANIFEST_T_HEADER:
	case MANIFEST_T_EXPRESSION:
		if (yaml_get_text(node, &text, &wrong) < 0)
			break;
		if (!string_fits(f, text, why, cap))
			return false;
		if (f->type == MANIFEST_T_EXPRESSION)
			wrong = expression_read(f, node, base);
		else if (f->type == MANIFEST_T_HEADER)
			store_lower(f, base, text);
		else
			store_text(f, base, text);
		break;
	case MANIFEST_T_SHARE:
	case MANIFEST_T_MONEY:
		wrong = decimal_read(node, 6, &n);
		if (wrong)
			break;
		s = (double)n / 1e6;
		if (!in_bounds(f, s, decimal_print, why, cap))
			return false;
		if (f->type == MANIFEST_T_SHARE)
			store(f, base, &s, sizeof(s));
		else
			store(f, base, &n, sizeof(n));
		break;
	case MANIFEST_T_OBJECTIVE:
		if (yaml_get_text(node, &text, &wrong) < 0)
			break;
		if (is_word(text, ""))
			return choice_read(f, text, base, why, cap);
		if (!string_fits(f, text, why, cap))
			return false;
		break;
	default:
		wrong = "is no single value";
		break;
	}
	if (wrong)
		snprintf(why, cap, "%s", wrong);
	return !wrong;
}

/* ---- maps ---- */

static const struct manifest_field *
field_find(const char *kind, const char *parent, const char *key)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);

	for (size_t i = 0; i < n; i++)
		if (strcmp(f[i].parent, parent) == 0 && strcmp(f[i].key, key) == 0)
			return &f[i];
	return NULL;
}

/* The same key at another place of the kind; of what every document has, of any kind. */
static const struct manifest_field *
found_elsewhere(const char *kind, const char *parent, const char *key)
{
	bool any = strcmp(kind, "*") == 0;
	const char *const *k = any ? manifest_kinds : &kind;

	for (; *k; k++) {
		size_t n;
		const struct manifest_field *f = manifest_fields(*k, &n);

		for (size_t i = 0; i < n; i++)
			if (strcmp(f[i].parent, parent) != 0 && strcmp(f[i].key, key) == 0)
				return &f[i];
		if (!any)
			break;
	}
	return NULL;
}

static void
complain_unknown(struct manifest_loader *l, const char *file, const char *kind, const char *parent,
		 const struct yaml_node *pair)
{
	size_t n, n_names = 0;
	const struct manifest_field *f = manifest_fields(kind, &n), *elsewhere = NULL;
	const char *names[KEYS_MAX], *near;

	for (size_t i = 0; i < n; i++)
		if (strcmp(f[i].parent, parent) == 0 && n_names < KEYS_MAX)
			names[n_names++] = f[i].key;
	near = yaml_nearest(pair->key, names, n_names);
	if (!near)
		elsewhere = found_elsewhere(kind, parent, pair->key);
	l->bad = true;
	if (near)
		yaml_errors_add(l->errs, file, pair->key_line, pair->key_column,
				"unknown key \"%.60s\" in %s; did you mean \"%s\"?", pair->key,
				*parent ? parent : "the document", near);
	else if (elsewhere)
		yaml_errors_add(l->errs, file, pair->key_line, pair->key_column,
				"unknown key \"%.60s\" in %s; it belongs in %s", pair->key,
				*parent ? parent : "the document", elsewhere->parent);
	else
		yaml_errors_add(l->errs, file, pair->key_line, pair->key_column,
				"unknown key \"%.60s\" in %s", pair->key,
				*parent ? parent : "the document");
	yaml_errors_detail(l->errs, pair->key, "a known key", near);
}

static bool
has_fields(const char *kind, const char *parent)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);

	for (size_t i = 0; i < n; i++)
		if (strcmp(f[i].parent, parent) == 0)
			return true;
	return false;
}

static bool
list_ok(struct manifest_loader *l, const char *file, const struct manifest_field *f,
	const struct yaml_node *node, const char *path)
{
	if (f->max == 0 && node->kind == YAML_KIND_SCALAR)
		return true; /* one or a list: aliasOf */
	if (node->kind != YAML_KIND_LIST) {
		MANIFEST_COMPLAIN(l, file, node, "%s must be a list", path);
		return false;
	}
	if (f->max > 0 &&
	    ((double)node->n_children < f->min || (double)node->n_children > f->max)) {
		MANIFEST_COMPLAIN(l, file, node, "%s must have from %.0f to %.0f items", path,
				  f->min, f->max);
		return false;
	}
	return true;
}

static bool
pair_load(struct manifest_loader *l, const char *file, const char *kind, const char *parent,
	  const struct yaml_node *pair, void *base)
{
	const struct manifest_field *f = field_find(kind, parent, pair->key);
	char path[256], why[256];

	if (!f) {
		if (strncmp(pair->key, "x-", 2) == 0)
			return true; /* the operator's own notes */
		complain_unknown(l, file, kind, parent, pair);
		return false;
	}
	snprintf(path, sizeof(path), "%s%s%s", parent, *parent ? "." : "", f->key);
	switch (f->type) {
	case MANIFEST_T_LATER:
		l->bad = true;
		yaml_errors_add(l->errs, file, pair->key_line, pair->key_column,
				"%s is not supported yet", path);
		return false;
	case MANIFEST_T_ANY:
		return true;
	case MANIFEST_T_LIST:
		return list_ok(l, file, f, pair, path);
	case MANIFEST_T_MAP:
		if (pair->kind != YAML_KIND_MAP) {
			MANIFEST_COMPLAIN(l, file, pair, "%s must be a map", path);
			return false;
		}
		return !has_fields(kind, path) ||
		       manifest_fields_load(l, file, kind, path, pair, base);
	default:
		if (manifest_value_read(f, pair, base, why, sizeof(why)))
			return true;
		MANIFEST_COMPLAIN(l, file, pair, "%s %s", path, why);
		yaml_errors_detail(l->errs, pair->kind == YAML_KIND_SCALAR ? pair->text : NULL,
				   f->choices, choice_near(f, pair));
		return false;
	}
}

bool
manifest_fields_load(struct manifest_loader *l, const char *file, const char *kind,
		     const char *parent, const struct yaml_node *map, void *base)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);
	bool ok = true;

	if (map->kind != YAML_KIND_MAP) {
		MANIFEST_COMPLAIN(l, file, map, "%s must be a map",
				  *parent ? parent : "the document");
		return false;
	}
	for (const struct yaml_node *pair = map->child; pair; pair = pair->next)
		ok = pair_load(l, file, kind, parent, pair, base) && ok;
	for (size_t i = 0; i < n; i++)
		if (f[i].required && strcmp(f[i].parent, parent) == 0 &&
		    !yaml_map_get(map, f[i].key)) {
			MANIFEST_COMPLAIN(l, file, map, "%s needs \"%s\"",
					  *parent ? parent : "the document", f[i].key);
			ok = false;
		}
	return ok;
}

/* Is a field of that parent in the struct of the items of that list ("": the document's)? */
static bool
is_of_list(const char *parent, const char *list)
{
	size_t len = strlen(list);

	return strncmp(parent, list, len) == 0 && !strstr(parent + len, "[]");
}

void
manifest_defaults(const char *kind, const char *list, void *base)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);
	char why[256];

	for (size_t i = 0; i < n; i++) {
		struct yaml_node node = {.kind = YAML_KIND_SCALAR, .text = f[i].fallback};

		if (!f[i].fallback || !is_of_list(f[i].parent, list))
			continue;
		node.len = strlen(node.text);
		manifest_value_read(&f[i], &node, base, why, sizeof(why));
	}
}
