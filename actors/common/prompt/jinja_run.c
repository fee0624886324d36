/* actors/common/prompt/jinja_run.c -- memory, work, output and errors of one render. */
#include "actors/common/prompt/jinja_private.h"

#include <stdarg.h>
#include <stdio.h>

#define STEPS_LOOK 4096u                /* then look whether it is stopped */
#ifdef __SANITIZE_ADDRESS__
#define STACK_MAX (4u << 20)            /* instrumented frames are large */
#else
#define STACK_MAX (512u << 10)
#endif

void
run_fail(struct run *run, const char *fmt, ...)
{
	va_list ap;

	if (run->err) {
		run->err->line = run->line;
		va_start(ap, fmt);
		(void)vsnprintf(run->err->text, sizeof(run->err->text), fmt, ap);
		va_end(ap);
	}
	run->code = -EINVAL;
	longjmp(run->fail, 1);
}

void
run_stop(struct run *run, int code, const char *what)
{
	if (run->err) {
		run->err->line = run->line;
		(void)snprintf(run->err->text, sizeof(run->err->text), "%s", what);
	}
	run->code = code;
	longjmp(run->fail, 1);
}

void *
run_take(struct run *run, size_t n)
{
	void *p = bump_take(run->bump, n);

	if (!p)
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	return p;
}

char *
run_bytes(struct run *run, size_t n)
{
	char *p = n <= UINT32_MAX ? bump_bytes(run->bump, n) : NULL;

	if (!p)
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	return p;
}

void
run_steps(struct run *run, uint64_t n)
{
	if (run->steps < n)
		run_stop(run, -E2BIG, "the template works too long");
	if (run->options->stop && (run->steps ^ (run->steps - n)) / STEPS_LOOK &&
	    atomic_load_explicit(run->options->stop, memory_order_relaxed))
		run_stop(run, -E2BIG, "stopped");
	run->steps -= n;
}

void
run_deep(struct run *run)
{
	const char *here = __builtin_frame_address(0);
	size_t used = here < run->stack ? (size_t)(run->stack - here)
					: (size_t)(here - run->stack);

	if (used > STACK_MAX)
		run_stop(run, -E2BIG, "RecursionError: maximum recursion depth exceeded");
}

void
run_push(struct run *run, struct value_items *items, struct value v)
{
	if (!value_push(run->bump, items, v))
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
}

void
run_put(struct run *run, struct value_dict *dict, struct value key, struct value v)
{
	if (!value_hashable(key))
		run_fail(run, "TypeError: unhashable type: '%s'", type_name(key));
	if (!value_put(dict, key, v))
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
}

struct value_dict *
run_dict(struct run *run, uint32_t room)
{
	struct value_dict *dict = value_dict_new(run->bump, room);

	if (!dict)
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	return dict;
}

struct value
run_pair(struct run *run, struct value a, struct value b)
{
	struct value *item = run_take(run, 2 * sizeof(*item));

	item[0] = a;
	item[1] = b;
	return value_tuple(item, 2);
}

struct value
run_copy(struct run *run, struct slice s, unsigned flags)
{
	char *p = run_bytes(run, s.len);

	if (s.len)
		memcpy(p, s.p, s.len);
	return value_text(slice_of(p, s.len), flags);
}

struct value
run_printf(struct run *run, const char *fmt, ...)
{
	char buf[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	if ((size_t)n >= sizeof(buf))
		n = (int)sizeof(buf) - 1;
	return run_copy(run, slice_of(buf, (size_t)n), 0);
}

/* Where `a` is the newest text of the bump it grows in place: a text built piece by piece is
 * copied once.  (What held `a` still sees its own length.) */
struct value
run_concat(struct run *run, struct slice a, struct slice b, unsigned flags)
{
	char *p;

	if (a.len == 0)
		return value_text(b, flags);
	if (b.len == 0)
		return value_text(a, flags);
	if (a.len + b.len > UINT32_MAX)
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	if (bump_extend(run->bump, a.p + a.len, b.len)) {
		union {
			const char *from;
			char *to;
		} end = {.from = a.p + a.len};  /* it is the bump's memory, and free */

		memcpy(end.to, b.p, b.len);
		return value_text(slice_of(a.p, a.len + b.len), flags);
	}
	p = run_bytes(run, a.len + b.len);
	memcpy(p, a.p, a.len);
	memcpy(p + a.len, b.p, b.len);
	return value_text(slice_of(p, a.len + b.len), flags);
}

void
out_add(struct run *run, const char *p, size_t n)
{
	int r = text_add(run->out, p, n);

	if (r < 0)
		run_stop(run, r, r == -ENOSPC ? "the text is longer than it may be"
					      : "no memory for the text");
}

struct value
out_capture(struct run *run, size_t mark, unsigned flags)
{
	struct value v = run_copy(run, slice_of(run->out->p ? run->out->p + mark : "",
						run->out->len - mark), flags);

	run->out->len = mark;
	return v;
}

const char *
type_name(struct value v)
{
	static const char *const name[] = {
		[VALUE_UNDEFINED] = "Undefined", [VALUE_NONE] = "NoneType", [VALUE_BOOL] = "bool",
		[VALUE_INT] = "int", [VALUE_BIG] = "int", [VALUE_FLOAT] = "float",
		[VALUE_STRING] = "str", [VALUE_LIST] = "list", [VALUE_TUPLE] = "tuple",
		[VALUE_DICT] = "dict", [VALUE_ITER] = "generator", [VALUE_RANGE] = "range",
		[VALUE_VIEW] = "dict_items", [VALUE_NAMESPACE] = "Namespace",
		[VALUE_LOOP] = "LoopContext", [VALUE_MACRO] = "Macro",
		[VALUE_METHOD] = "builtin_function_or_method", [VALUE_FUNCTION] = "function",
		[VALUE_CYCLER] = "Cycler", [VALUE_JOINER] = "Joiner",
	};

	if (v.kind == VALUE_STRING && v.flags & VALUE_MARKUP)
		return "Markup";
	return v.kind < VALUE_KINDS ? name[v.kind] : "object";
}

/* An undefined remembers its name (s, spare bytes) and what it was looked for in (n: kind + 1). */
static struct value
undefined_with(struct slice name, uint32_t in, unsigned flags)
{
	return (struct value){.kind = VALUE_UNDEFINED, .flags = (uint8_t)flags, .n = in,
			      .s = name.p,
			      .spare = (uint16_t)(name.len > UINT16_MAX ? UINT16_MAX : name.len)};
}

struct value
undefined_name(struct slice name)
{
	return undefined_with(name, 0, 0);
}

struct value
undefined_of(struct value obj, struct slice name)
{
	return undefined_with(name, obj.kind + 1u, 0);
}

struct value
undefined_refused(struct value obj, struct slice name)
{
	return undefined_with(name, obj.kind + 1u, VALUE_REFUSED);
}

void
fail_undefined(struct run *run, struct value v)
{
	struct value obj = {.kind = (uint8_t)(v.n - 1)};

	if (v.flags & VALUE_REFUSED)
		run_fail(run, "SecurityError: access to attribute '%.*s' of '%s' object is unsafe.",
			 (int)v.spare, v.s, type_name(obj));
	if (!v.s)
		run_fail(run, "UndefinedError: the value is undefined");
	if (v.n == 0)
		run_fail(run, "UndefinedError: '%.*s' is undefined", (int)v.spare, v.s);
	run_fail(run, "UndefinedError: '%s object' has no attribute '%.*s'", type_name(obj),
		 (int)v.spare, v.s);
}
