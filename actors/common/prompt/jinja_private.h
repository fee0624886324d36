/* actors/common/prompt/jinja_private.h -- what the parts of the template engine share.
 *
 * Parts      jinja_lex.c tokens; jinja_parse.c the tree; jinja_scope.c which name is which slot,
 *            by Jinja2's own rules; jinja_meta.c questions about a tree; jinja_exec.c statements;
 *            jinja_eval.c expressions; jinja_attr.c what hangs on a value; jinja_call.c who is
 *            called with what; jinja_iter.c what is walked; jinja_filters*.c, jinja_tests.c;
 *            py_*.c Python's operators, texts and formats.
 * Tree       made once in the template's own bump, then read-only.
 * Errors     one way out: compile_fail and run_fail leave by longjmp to jinja_compile or
 *            jinja_render.  Nothing between holds memory but the bump's.
 */
#pragma once
#include <setjmp.h>

#include "actors/common/prompt/jinja.h"

enum token_type {
	T_EOF, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING,
	T_INT, T_FLOAT, T_ADD, T_SUB, T_MUL, T_DIV, T_FLOORDIV, T_MOD, T_POW, T_TILDE, T_LBRACKET,
	T_RBRACKET, T_LPAREN, T_RPAREN, T_LBRACE, T_RBRACE, T_EQ, T_NE, T_GT, T_GE, T_LT, T_LE,
	T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON
};

struct token {
	enum token_type type;
	uint32_t line;
	struct value value;                     /* text of data and names, value of literals */
};

struct compile {
	struct bump *bump;
	struct jinja *jinja;
	struct jinja_error *err;
	int code;
	jmp_buf fail;
	struct token *token;                    /* all of them, the last is T_EOF */
	uint32_t n_token, at;
	unsigned depth;                         /* of expressions and statements in each other */
};

enum node_kind {
	/* expressions */
	N_CONST, N_NAME, N_TUPLE, N_LIST, N_DICT, N_ADD, N_SUB, N_MUL, N_DIV, N_FLOORDIV, N_MOD,
	N_POW, N_AND, N_OR, N_NOT, N_NEG, N_POS, N_CONCAT, N_COMPARE, N_GETATTR, N_GETITEM,
	N_SLICE, N_FILTER, N_TEST, N_COND, N_CALL, N_NSREF,
	/* statements */
	N_OUTPUT, N_DATA, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK,
	N_WITH, N_SCOPE, N_BREAK, N_CONTINUE
};

enum compare_op { OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN };

struct node;

struct node_list {
	struct node **node;
	uint32_t n, cap;
};

struct keyword {
	struct slice name;
	struct node *value;
};

/* What stands between the parentheses of a call. */
struct call_args {
	struct node_list pos;
	struct keyword *kw;
	uint32_t n_kw;
	struct node *star, *star_star;          /* *args, **kwargs */
};

/* What a frame does when it is entered: fill slots. */
enum load_kind { LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEFINED };

struct load {
	enum load_kind kind;
	uint16_t slot;                          /* of the frame's function */
	uint16_t from, hops;                    /* ALIAS: slot, functions outwards */
	uint32_t name;                          /* RESOLVE: which context name */
};

struct loads {
	struct load *load;
	uint32_t n;
};

struct filter_def;
struct test_def;

struct node {
	uint8_t kind;
	uint8_t op;                             /* compare_op; store, not load; flags below */
	uint16_t slot, hops;                    /* N_NAME, N_NSREF, and what a statement stores */
	uint32_t line;
	struct value value;                     /* constant, or the name */
	struct node *a, *b, *c, *d;
	struct node_list list;                  /* items, operands, body */
	union {
		struct call_args *args;
		const struct loads *loads;      /* statements with a frame of their own */
	};
	union {
		const struct filter_def *filter;
		const struct test_def *test;
		struct body *body;
		uint16_t method;                /* N_GETATTR: enum method_id of its name */
	};
};
#define NODE_STORE      1u              /* N_NAME: assigned to */
#define NODE_PARAM      2u              /* N_NAME: a parameter */
#define NODE_RECURSIVE  1u              /* N_FOR */
#define NODE_LOOP_VAR   2u              /* N_FOR: its body looks at `loop` */

/* The longer statements: for, macro, call block. */
struct body {
	struct node_list params, defaults;      /* macro: parameters, and of the last of them */
	struct node_list els;                   /* for: else */
	struct loads loads, test_loads, els_loads;
	struct node *test_target;               /* for: the target as the test sees it */
	uint16_t slots;                         /* of the function it is, if it is one */
	uint16_t loop_slot;                     /* for: `loop` */
	bool is_function;                       /* macro, call block, recursive for */
	bool caller, kwargs, varargs;           /* macro: which of these its body asks for */
	bool explicit_caller;
	uint16_t caller_slot, kwargs_slot, varargs_slot;
	uint16_t store_slot, store_hops;        /* macro: where it goes */
};

struct jinja {
	struct bump bump;
	struct node_list body;
	struct loads loads;
	uint16_t slots;
	struct slice *name;                     /* what it may ask its context for */
	uint32_t n_name, cap_name;
	bool loops_over_content;
};

/* jinja_lex.c, jinja_parse.c, jinja_scope.c, jinja_meta.c */
_Noreturn void compile_fail(struct compile *c, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void *compile_take(struct compile *c, size_t n);        /* cleared; never NULL */
void *compile_grow(struct compile *c, void *array, uint32_t n, uint32_t *cap, uint32_t first,
		   size_t size);
	/* The array of n elements of that size, with room for one more: itself, or a copy twice as
	 * long (its first has room for `first`). */
void node_push(struct compile *c, struct node_list *list, struct node *node);
void jinja_lex(struct compile *c, struct slice source);
void jinja_parse(struct compile *c, struct node_list *ret);
void jinja_resolve(struct compile *c);
bool jinja_meta_content(const struct jinja *jinja);

/* A function's variables, of one call. */
struct frame {
	struct frame *parent;                   /* of the function it stands in */
	struct value slot[];
};

struct run {
	const struct jinja *jinja;
	struct bump *bump;
	struct text *out;
	const struct jinja_options *options;
	struct jinja_error *err;
	struct value *global;                   /* jinja->name as the context has them */
	struct value captured;                  /* what a block with a filter has written */
	uint64_t steps;                         /* left */
	unsigned depth;                         /* macro calls left */
	const char *stack;                      /* where it began */
	uint32_t line;                          /* of what is at work */
	int code;
	jmp_buf fail;
};

/* Arguments as they came. */
struct kwarg {
	struct slice name;
	struct value value;
};

struct args {
	const struct value *pos;
	const struct kwarg *kw;
	uint32_t n, n_kw;
};

#define ARGS_MAX    8u
#define ARG_MISSING 0x80u               /* flags of an undefined: no such argument was given */
static inline bool
given(struct value v)
{
	return v.kind != VALUE_UNDEFINED || !(v.flags & ARG_MISSING);
}

/* Filters get what they filter, then their arguments as the signature orders them (args_bind);
 * all: everything given, for those that pass it on. */
struct filter_def {
	const char *name;
	struct value (*fn)(struct run *run, struct value in, const struct value *a,
			   const struct args *all);
	const char *signature;                  /* NULL: only `all` */
};

struct test_def {
	const char *name;
	bool (*fn)(struct run *run, struct value in, const struct value *a);
	const char *signature;
};

/* Objects only a template makes; a value's p points to one. */
struct range {                          /* VALUE_RANGE; value.n: how many */
	int64_t start, stop, step;
};

enum view_of { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };    /* VALUE_VIEW: flags; dict, value.n */

struct iter {                           /* a walk, at hand or VALUE_ITER */
	enum { ITER_ARRAY, ITER_TEXT, ITER_DICT, ITER_RANGE, ITER_BACK, ITER_GEN, ITER_DONE } kind;
	uint32_t i, n;
	union {
		const struct value *items;
		const char *text, *text_end;
		struct gen *gen;
		const struct range *range;
	};
	const char *end;
	const struct value_dict *dict;
	enum view_of view;
	unsigned flags;                         /* of the text's characters */
};

enum gen_kind { GEN_WALK, GEN_MAP, GEN_SELECT, GEN_UNIQUE, GEN_BATCH, GEN_SLICE, GEN_ITEMS };

struct gen {                            /* VALUE_ITER: made by a filter, walked once */
	enum gen_kind kind;
	bool begun, done;
	struct value source;
	struct iter from;
	struct value attribute, fallback;       /* path, and what stands for undefined */
	bool by_attribute, negate, fold_case, has_fallback;
	struct value name;                      /* of a filter or test; undefined: truth */
	struct args args;
	struct value_dict *seen;                /* unique */
	int64_t count;                          /* batch, slice */
	struct value fill;
	struct value_items all;                 /* slice */
	int64_t at, offset;
};

struct namespace_ {
	struct value_dict *dict;
};

struct loop {                           /* VALUE_LOOP */
	struct iter it;
	struct value source, before, current, after;
	struct value changed;
	int64_t index0, length, depth0;         /* length -1: not known yet */
	bool has_after, has_changed, started;
	const struct node *node;
	struct frame *frame;                    /* for its test; a recursion's outer one */
};

struct macro {                          /* VALUE_MACRO */
	const struct node *node;
	struct frame *closure;
	struct slice name;                      /* absent: a call block's */
};

struct method {                         /* VALUE_METHOD */
	struct value self;
	unsigned id;
};

struct cycler {
	const struct value *items;
	uint32_t n, pos;
};

struct joiner {
	struct value sep;
	bool used;
};

enum function_id {                      /* VALUE_FUNCTION: i */
	FN_RANGE, FN_DICT, FN_LIPSUM, FN_CYCLER, FN_JOINER, FN_NAMESPACE, FN_RAISE, FN_STRFTIME,
	FN_COUNT
};

/* jinja_run.c: what every part needs */
_Noreturn void run_fail(struct run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
_Noreturn void run_stop(struct run *run, int code, const char *what);
void *run_take(struct run *run, size_t n);              /* never NULL, not cleared */
char *run_bytes(struct run *run, size_t n);
void run_steps(struct run *run, uint64_t n);            /* work done: stops past the bound */
void run_deep(struct run *run);                         /* stops before the stack ends */
void run_push(struct run *run, struct value_items *items, struct value v);
void run_put(struct run *run, struct value_dict *dict, struct value key, struct value v);
struct value_dict *run_dict(struct run *run, uint32_t room);
struct value run_pair(struct run *run, struct value a, struct value b);         /* a tuple */
struct value run_copy(struct run *run, struct slice s, unsigned flags);
struct value run_printf(struct run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
struct value run_concat(struct run *run, struct slice a, struct slice b, unsigned flags);
void out_add(struct run *run, const char *p, size_t n);
struct value out_capture(struct run *run, size_t mark, unsigned flags);
	/* A string of what was written since out's length was mark; out is shortened to it. */
const char *type_name(struct value v);
_Noreturn void fail_undefined(struct run *run, struct value v);
struct value undefined_name(struct slice name);
struct value undefined_of(struct value obj, struct slice name);
struct value undefined_refused(struct value obj, struct slice name);

static inline void
out_slice(struct run *run, struct slice s)
{
	out_add(run, s.p, s.len);
}

static inline bool
is_text(struct value v)
{
	return v.kind == VALUE_STRING;
}

static inline bool
is_int(struct value v)                  /* bool is one */
{
	return v.kind == VALUE_INT || v.kind == VALUE_BOOL;
}

static inline bool
is_undefined(struct value v)
{
	return v.kind == VALUE_UNDEFINED;
}

static inline struct value
value_tuple(const struct value *items, uint32_t n)
{
	return (struct value){.kind = VALUE_TUPLE, .n = n,
			      .items = items ? items : value_nothing};
}

static inline struct value
value_text(struct slice s, unsigned flags)
{
	struct value v = value_string(s);

	v.flags = (uint8_t)(flags & VALUE_MARKUP);
	return v;
}

/* jinja_exec.c */
struct value call_macro(struct run *run, const struct macro *macro, const struct args *args,
			bool direct);
	/* direct: writes to out and returns undefined; else its text. */
struct value call_loop(struct run *run, struct loop *loop, struct value items);

/* jinja_eval.c */
struct value eval(struct run *run, struct frame *frame, const struct node *node);
void emit(struct run *run, struct frame *frame, const struct node *node); /* writes str(it) */
bool run_true(struct run *run, struct value v);

/* jinja_call.c */
void args_eval(struct run *run, struct frame *frame, const struct call_args *from,
	       struct args *ret);
void args_bind(struct run *run, const char *who, const char *signature, const struct args *args,
	       struct value *ret);
	/* signature "a,b|c,*,d": before the bar required, behind "*" by keyword only; names may be
	 * left out of those by place only.  ret[ARGS_MAX]; missing (given()) where not given. */
struct value call_value(struct run *run, struct value callee, const struct args *args);
struct value call_filter(struct run *run, const struct filter_def *def, struct value in,
			 const struct args *args);
bool call_test(struct run *run, const struct test_def *def, struct value in,
	       const struct args *args);
int64_t arg_int(struct run *run, struct value v);       /* operator.index */
bool global_find(struct slice name, struct value *ret);
bool global_of_jinja(struct slice name);                /* of every environment, not only ours */

/* jinja_attr.c */
unsigned method_find(struct slice name);                /* 0: no type has it */
const char *method_name(unsigned id);
bool method_has(struct value v, unsigned id);
struct value call_method(struct run *run, struct value self, unsigned id,
			 const struct args *args);
struct value attr_get(struct run *run, struct value obj, struct slice name, unsigned method);
struct value item_get(struct run *run, struct value obj, struct value key);
struct value item_slice(struct run *run, struct value obj, struct value start, struct value stop,
			struct value step);

/* jinja_iter.c */
void iter_begin(struct run *run, struct iter *it, struct value over);
bool iter_next(struct run *run, struct iter *it, struct value *ret);
bool iter_able(struct value v);
struct value_items items_of(struct run *run, struct value v);   /* list(v), perhaps v's own */
struct value gen_new(struct run *run, const struct gen *gen);
struct value attr_path(struct run *run, const struct gen *gen, struct value item);
bool loop_next(struct run *run, struct loop *loop, struct value *ret);
bool loop_peek(struct run *run, struct loop *loop, struct value *ret);
struct value loop_attr(struct run *run, struct loop *loop, struct slice name);

/* jinja_filters.c, jinja_filters_seq.c, jinja_filters_text.c, jinja_tests.c */
const struct filter_def *filter_find(struct slice name);
const struct test_def *test_find(struct slice name);

/* py_ops.c */
struct value py_binary(struct run *run, enum node_kind op, struct value a, struct value b);
struct value py_unary(struct run *run, enum node_kind op, struct value a);
int py_compare(struct run *run, enum compare_op op, struct value a, struct value b);
	/* -1, 0, 1; 2 unordered (NaN).  Fails for what Python does not order. */
bool py_relation(struct run *run, enum compare_op op, struct value a, struct value b);
bool py_contains(struct run *run, struct value in, struct value item);
int64_t py_len(struct run *run, struct value v);        /* len(v), fails for what has none */
bool py_has_len(struct value v);
struct value py_int_of(struct run *run, struct value v, int64_t base, bool *ok);
struct value py_float_of(struct run *run, struct value v, bool *ok);

/* py_repr.c */
void py_str(struct run *run, struct value v);           /* written to out */
void py_repr(struct run *run, struct value v);
struct slice py_text(struct run *run, struct value v);  /* str(v): its own bytes if it is text */
struct slice py_float_text(double f, char buf[static 32]);      /* repr(f) */

/* py_str.c: methods of str and others that are not of one line */
struct value str_method(struct run *run, struct value self, unsigned id, const struct args *args);
struct value py_case(struct run *run, struct value s, const char *how);
struct value py_replace(struct run *run, struct slice s, struct slice from, struct slice to,
			int64_t count, unsigned flags);
struct value_items py_splitlines(struct run *run, struct value s, bool keep_ends);
struct value py_title_words(struct run *run, struct value s);   /* the filter `title` */
void py_escape(struct run *run, struct slice s);        /* HTML, written to out */
struct value py_markup(struct run *run, struct value v);        /* escape(v) */

/* py_format.c */
struct value py_percent(struct run *run, struct value format, struct value args);
struct value py_format(struct run *run, struct value format, const struct args *args,
		       struct value mapping);
void py_format_spec(struct run *run, struct value v, struct slice spec);        /* written */

/* py_time.c */
struct value py_strftime(struct run *run, struct slice format);

/* Filters by file; the table is in jinja_filters.c. */
#define FILTER(name)                                                                               \
	struct value filter_##name(struct run *run, struct value in, const struct value *a,        \
				   const struct args *all)
FILTER(batch);
FILTER(dictsort);
FILTER(first);
FILTER(groupby);
FILTER(items);
FILTER(join);
FILTER(last);
FILTER(list);
FILTER(map);
FILTER(max);
FILTER(min);
FILTER(reject);
FILTER(rejectattr);
FILTER(reverse);
FILTER(select);
FILTER(selectattr);
FILTER(slice);
FILTER(sort);
FILTER(sum);
FILTER(unique);
FILTER(filesizeformat);
FILTER(format);
FILTER(indent);
FILTER(round);
FILTER(tojson);
FILTER(truncate);
FILTER(urlencode);
FILTER(wordcount);
FILTER(xmlattr);
