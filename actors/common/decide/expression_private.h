/* actors/common/decide/expression_private.h -- what the files expression_*.c share; nobody else's
 * but their tests'.
 *
 * The way    text -> tokens (lex) -> tree (parse) -> types, facts and folded constants (check)
 *            -> steps (emit) -> values (expression.c).  The tree goes when the steps are there.
 * Errors     the first ends it: expression_fail() notes where, what was found and expected.
 */
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "actors/common/decide/expression.h"

#define EXPRESSION_TREE_MAX 512u        /* depth of the tree: of long chains, too */
#define EXPRESSION_REGISTERS 128u
#define EXPRESSION_REGEXES 32u

/* ---- values ---- */

enum expression_type {
	TYPE_UNKNOWN,                   /* of a value: not known.  Of a node: not checked yet */
	TYPE_BOOL,
	TYPE_INT,
	TYPE_UINT,
	TYPE_DOUBLE,
	TYPE_STRING,
	TYPE_DURATION,                  /* ns */
	TYPE_LIST,                      /* of one of the above */
	TYPE_TAGS,                      /* of nodes only, as those behind it */
	TYPE_HEADERS,
	TYPE_LABELS,
	TYPES
};

struct expression_value {
	enum expression_type type;
	uint32_t n;                     /* LIST */
	union {
		bool b;
		int64_t i;              /* INT, DURATION */
		uint64_t u;
		double d;
		struct slice s;
		const struct expression_value *item; /* LIST */
	};
};

/* ---- tokens ---- */

enum expression_token_type {
	TOKEN_END,
	TOKEN_NAME,                     /* true, false and null, too */
	TOKEN_LITERAL,                  /* number or string */
	TOKEN_MARK,                     /* operator or bracket; `in` as well */
};

struct expression_token {
	enum expression_token_type type;
	uint32_t offset, len;
	char mark[3];                   /* "&&", "(", "in" */
	struct expression_value value;
};

struct expression_source {
	struct slice text;
	uint32_t at;                    /* next byte to be looked at */
	char *strings;                  /* owned: unescaped literals, each ended by a NUL */
	size_t n_strings;
	struct expression_token token;  /* next */
	struct expression_error *error;
};

int expression_lex(struct expression_source *s);
	/* Read the next token into s->token.  0, -EINVAL. */
int expression_fail(struct expression_source *s, uint32_t offset, struct slice found,
		    const char *nearest, const char *expected, ...)
	__attribute__((format(printf, 5, 6)));
	/* -EINVAL; the first call counts.  found {NULL, 0}: the end. */
bool expression_duration(struct slice text, int64_t *ret_ns);
	/* "1h30m", "-1.5s", "250ms"; "0" needs no unit. */
bool expression_quantity(struct slice text, int64_t *ret);
	/* "64k", "8Ki", "1.5M": a whole number. */

/* ---- the tree ---- */

enum expression_node_type {
	NODE_LITERAL, NODE_NAME, NODE_SELECT, NODE_INDEX, NODE_CALL, NODE_LIST,
	NODE_NOT, NODE_MINUS,
	NODE_ADD, NODE_SUBTRACT, NODE_MULTIPLY, NODE_DIVIDE, NODE_MODULO,
	NODE_EQUAL, NODE_UNEQUAL, NODE_LESS, NODE_LESS_EQUAL, NODE_MORE, NODE_MORE_EQUAL,
	NODE_IN, NODE_AND, NODE_OR, NODE_TERNARY,
	/* what the check makes of them */
	NODE_FACT, NODE_POOL, NODE_KNOWN, NODE_TAG, NODE_HEADER, NODE_HAS_HEADER, NODE_LABEL,
	NODE_HAS_LABEL, NODE_CHOICE, NODE_CONVERT, NODE_SIZE, NODE_STARTS, NODE_ENDS, NODE_CONTAINS,
	NODE_MATCHES,
};

struct expression_node {
	enum expression_node_type kind;
	enum expression_type type, item; /* item: of a LIST; UNKNOWN: it is empty */
	uint32_t offset, len;           /* where it stands */
	uint32_t depth;
	struct slice name;              /* NAME, SELECT, CALL */
	bool method;                    /* CALL: child is what it is called on */
	struct expression_node *child;  /* operands, in order */
	struct expression_node *next;
	uint32_t n_children;
	enum fact fact;                 /* FACT, POOL, KNOWN, CHOICE */
	uint32_t index;                 /* POOL: which, or POOL_OF_CANDIDATE; TAG: bit; CHOICE */
	struct expression_value value;  /* LITERAL; type UNKNOWN: it cannot be computed */
};
#define POOL_OF_CANDIDATE UINT32_MAX

struct expression_tree {
	struct expression_source source;
	struct expression_node *nodes;  /* owned */
	uint32_t n_nodes, cap_nodes;
	struct expression_value *items; /* owned: of literal lists */
	uint32_t n_items;
	struct expression_node *root;
	enum expression_place place;
	const struct expression_names *names;
};

int expression_parse(struct slice text, struct expression_tree *ret,
		     struct expression_error *ret_error);
	/* 0, -EINVAL, -ENOMEM; expression_tree_free() in any case. */
int expression_check(struct expression_tree *t, enum expression_place place,
		     const struct expression_names *names, bool fold);
	/* Types, names, and what is known now.  fold: what reads no fact becomes a literal. */
void expression_tree_free(struct expression_tree *);

/* ---- the check's parts ---- */

#define EXPRESSION_PATH_MAX 64u         /* bytes of "a.b.c" */

struct checker {
	struct expression_tree *t;
	const struct expression_names *names;
	unsigned classes;               /* facts that may be read here */
	bool fold;
};

#define FAIL(c, n, nearest, ...)                                                                   \
	expression_fail(&(c)->t->source, (n)->offset,                                              \
			slice_of((c)->t->source.text.p + (n)->offset, (n)->len), nearest,          \
			__VA_ARGS__)

const char *expression_type_name(enum expression_type);         /* "a bool" */
int expression_check_node(struct checker *c, struct expression_node *n);
	/* And all below it. */
int expression_fold(struct checker *c, struct expression_node *n);
	/* Children first: a literal where none of them reads a fact. */
int expression_want_literal(struct checker *c, const struct expression_node *n,
			    const char *what);
int expression_check_name(struct checker *c, struct expression_node *n);
	/* A NAME or SELECT. */
bool expression_is_pool(const struct expression_node *n);
	/* pool['x'] or pool.x, before they are checked. */
int expression_keyed(struct checker *c, struct expression_node *n,
		     const struct expression_node *map, const struct expression_node *from,
		     struct slice key, bool has);
	/* n is a key of headers (in lower case then) or labels; from: where it is written. */
int expression_find_name(struct checker *c, const struct expression_node *n,
			 const char *const *names, size_t n_names, const char *what,
			 struct slice name, uint32_t *ret);
	/* Its subscript, or a complaint about n that says what it should be. */
int expression_check_against(struct checker *c, const struct expression_node *fact,
			     const struct expression_node *n);
	/* Is what it is compared with one of the names it can have? */

/* ---- steps ---- */

enum expression_code {
	STEP_COPY,                      /* dst = a */
	STEP_FACT,                      /* dst = fact arg */
	STEP_REQUEST_INT, STEP_INT,     /* dst = the int or double at offset arg of the request, */
	STEP_REQUEST_DOUBLE, STEP_DOUBLE, /* or of the candidate */
	STEP_STRING,
	STEP_COMPARE_INTS,              /* dst = a op b of that type; arg as OPERATE's */
	STEP_COMPARE_DOUBLES,
	STEP_POOL,                      /* dst = fact arg of pool b, or of the candidate's */
	STEP_POOL_HERE,
	STEP_KNOWN,                     /* dst = a is known */
	STEP_TAG,                       /* dst = bit arg is among the tags */
	STEP_TAGS_SIZE,
	STEP_HEADER, STEP_HAS_HEADER,   /* dst = value of, or whether there is, key a */
	STEP_LABEL, STEP_HAS_LABEL,
	STEP_CHOICE,                    /* dst = fact arg has a value whose bit is in b; more: of
					 * how many */
	STEP_NOT, STEP_MINUS,           /* dst = op a */
	STEP_OPERATE,                   /* dst = a op b; arg: enum expression_node_type */
	STEP_CONVERT,                   /* dst = a as type arg */
	STEP_SIZE,
	STEP_MATCHES,                   /* dst = a matches regex b */
	STEP_LIST,                      /* dst = values arg .. arg + b - 1 */
	STEP_AND, STEP_OR,              /* dst = a op b, of which neither decided it alone */
	STEP_JUMP,                      /* to arg */
	STEP_JUMP_NO, STEP_JUMP_YES,    /* to arg if a says so, which is then in dst */
	STEP_BRANCH,                    /* a no: to arg; unknown: dst is, and to b */
};

struct expression_step {
	uint8_t code;
	uint8_t more;
	uint16_t dst, a, b;             /* registers; or constants, CONSTANT + subscript */
	uint32_t arg;
};
#define CONSTANT 0x8000u

struct expression {
	char *text;                     /* owned, as all of it */
	size_t len;
	char *strings;
	struct expression_value *constants, *items;
	struct expression_step *steps;
	pcre2_code *regex[EXPRESSION_REGEXES];
	pcre2_match_context *match;     /* limits; NULL without regexes */
	uint32_t n_constants, n_steps, n_regexes;
	uint16_t result;                /* register or constant */
	enum expression_type type;
	uint64_t reads, tags;
};

int expression_emit(struct expression_tree *t, struct expression *e);
	/* 0, -EINVAL (too much), -ENOMEM. */

/* What operators do; unknown where an operand is, or CEL has an error. */
struct expression_value expression_operate(enum expression_node_type,
					   const struct expression_value *a,
					   const struct expression_value *b);
struct expression_value expression_minus(const struct expression_value *a);
struct expression_value expression_convert(const struct expression_value *a,
					   enum expression_type to);
struct expression_value expression_size(const struct expression_value *a);
struct expression_value expression_fact(enum fact, const struct facts *, uint32_t pool);
	/* Any row but TAGS, HEADERS and LABELS. */
const struct facts_label *expression_label(const struct facts *, struct slice key);
	/* NULL: it has none.  There must be a candidate. */

/* ---- regular expressions: RE2's language by PCRE2 ---- */

const char *expression_regex_wrong(struct slice pattern, uint32_t *ret_offset);
	/* NULL, or what of it CEL (RE2) does not have. */
int expression_regex_compile(struct slice pattern, pcre2_code **ret, char why[120],
			     uint32_t *ret_offset);
	/* 0, -EINVAL with why, -ENOMEM. */
enum expression_truth expression_regex_test(const pcre2_code *, pcre2_match_context *,
					    struct slice subject);
