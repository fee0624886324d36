/* actors/common/prompt/jinja_scope.c -- which variable a name means, and where it lies.
 *
 * Jinja2 decides this when it compiles, frame by frame: a name a frame only reads is the outer
 * frame's, or else comes from the context when the frame is entered; a name it writes is the
 * frame's own and begins as a copy of the outer one.  `if` has no frame of its own, but what only
 * some of its branches write begins as if it had not been written.  The order in which names are
 * met matters, so the walk here goes as Jinja2's does (its 3.1.6).
 */
#include "actors/common/prompt/jinja_private.h"


#define DEPTH_MAX 1000u                 /* nodes in each other */
#define NAMES_MAX 4000u                 /* of one frame */

struct function {                       /* what has a struct frame of its own at run time */
	struct function *outer;
	uint32_t slots;
	unsigned depth;
};

struct ref {
	struct slice name;
	uint16_t slot;
};

struct refs {
	struct ref *ref;
	uint32_t n, cap;
};

struct symbols {
	struct symbols *parent;
	struct function *function;
	struct refs *ids;                       /* every slot given here, shared by copies */
	struct refs refs, stores;
	struct load *load;
	uint32_t n_load, cap_load;
};

/* Where the second walk stands. */
struct at {
	struct symbols *sym;
	bool soft;                              /* inside if: unknown filters fail when they run */
	bool in_loop;
};

static void visit(struct compile *c, struct symbols *sym, struct node *node);
static void place(struct compile *c, const struct at *at, struct node *node);

static struct ref *
refs_find(const struct refs *refs, struct slice name)
{
	for (uint32_t i = 0; i < refs->n; i++)
		if (slice_eq(refs->ref[i].name, name))
			return &refs->ref[i];
	return NULL;
}

static void
refs_add(struct compile *c, struct refs *refs, struct slice name, uint16_t slot)
{
	struct ref *known = refs_find(refs, name);

	if (known) {
		known->slot = slot;
		return;
	}
	refs->ref = compile_grow(c, refs->ref, refs->n, &refs->cap, 8, sizeof(*refs->ref));
	if (refs->n == NAMES_MAX)
		compile_fail(c, 0, "too many names");
	refs->ref[refs->n++] = (struct ref){name, slot};
}

static void
refs_join(struct compile *c, struct refs *to, const struct refs *from)
{
	for (uint32_t i = 0; i < from->n; i++)
		refs_add(c, to, from->ref[i].name, from->ref[i].slot);
}

static void
set_load(struct compile *c, struct symbols *sym, struct load load)
{
	for (uint32_t i = 0; i < sym->n_load; i++) {
		if (sym->load[i].slot == load.slot) {
			sym->load[i] = load;
			return;
		}
	}
	sym->load = compile_grow(c, sym->load, sym->n_load, &sym->cap_load, 8, sizeof(*sym->load));
	sym->load[sym->n_load++] = load;
}

static struct symbols *
symbols_inner(struct compile *c, struct symbols *parent, struct function *function)
{
	struct symbols *sym = compile_take(c, sizeof(*sym));

	sym->parent = parent;
	sym->function = function;
	sym->ids = compile_take(c, sizeof(*sym->ids));
	return sym;
}

static struct symbols *
symbols_copy(struct compile *c, const struct symbols *from)
{
	struct symbols *sym = compile_take(c, sizeof(*sym));

	*sym = *from;
	sym->refs = sym->stores = (struct refs){0};
	refs_join(c, &sym->refs, &from->refs);
	refs_join(c, &sym->stores, &from->stores);
	sym->load = NULL;
	sym->n_load = sym->cap_load = 0;
	for (uint32_t i = 0; i < from->n_load; i++)
		set_load(c, sym, from->load[i]);
	return sym;
}

static struct function *
function_inner(struct compile *c, struct function *outer)
{
	struct function *f = compile_take(c, sizeof(*f));

	f->outer = outer;
	f->depth = outer ? outer->depth + 1 : 0;
	return f;
}

static const struct ref *
find(const struct symbols *sym, struct slice name, const struct function **ret_function)
{
	for (; sym; sym = sym->parent) {
		const struct ref *ref = refs_find(&sym->refs, name);

		if (ref) {
			*ret_function = sym->function;
			return ref;
		}
	}
	return NULL;
}

/* RESOLVE loads name the context's variable through this table. */
static uint32_t
context_name(struct compile *c, struct slice name)
{
	struct jinja *j = c->jinja;

	for (uint32_t i = 0; i < j->n_name; i++)
		if (slice_eq(j->name[i], name))
			return i;
	j->name = compile_grow(c, j->name, j->n_name, &j->cap_name, 32, sizeof(*j->name));
	if (j->n_name == NAMES_MAX)
		compile_fail(c, 0, "too many names");
	j->name[j->n_name] = name;
	return j->n_name++;
}

static uint16_t
define(struct compile *c, struct symbols *sym, struct slice name, struct load load)
{
	const struct ref *id = refs_find(sym->ids, name);
	uint16_t slot;

	if (id) {
		slot = id->slot;
	} else {
		if (sym->function->slots == UINT16_MAX)
			compile_fail(c, 0, "too many variables");
		slot = (uint16_t)sym->function->slots++;
		refs_add(c, sym->ids, name, slot);
	}
	refs_add(c, &sym->refs, name, slot);
	load.slot = slot;
	set_load(c, sym, load);
	return slot;
}

static uint16_t
declare_param(struct compile *c, struct symbols *sym, struct slice name)
{
	uint16_t slot = define(c, sym, name, (struct load){.kind = LOAD_PARAM});

	refs_add(c, &sym->stores, name, slot);
	return slot;
}

/* A copy of the outer variable, if there is one. */
static bool
alias(const struct symbols *sym, struct slice name, struct load *ret)
{
	const struct function *owner;
	const struct ref *outer = sym->parent ? find(sym->parent, name, &owner) : NULL;

	if (!outer)
		return false;
	ret->kind = LOAD_ALIAS;
	ret->from = outer->slot;
	ret->hops = (uint16_t)(sym->function->depth - owner->depth);
	return true;
}

static void
store(struct compile *c, struct symbols *sym, struct slice name)
{
	struct load load = {.kind = LOAD_UNDEFINED};

	refs_add(c, &sym->stores, name, 0);
	if (refs_find(&sym->refs, name))
		return;
	(void)alias(sym, name, &load);
	define(c, sym, name, load);
}

static void
read_name(struct compile *c, struct symbols *sym, struct slice name)
{
	const struct function *owner;

	if (!find(sym, name, &owner))
		define(c, sym, name, (struct load){.kind = LOAD_RESOLVE});
}

static void
branch_update(struct compile *c, struct symbols *sym, struct symbols *const branch[3])
{
	struct refs stores = {0};

	for (int b = 0; b < 3; b++)
		for (uint32_t i = 0; i < branch[b]->stores.n; i++)
			if (!refs_find(&sym->stores, branch[b]->stores.ref[i].name))
				refs_add(c, &stores, branch[b]->stores.ref[i].name, 0);
	for (int b = 0; b < 3; b++) {
		refs_join(c, &sym->refs, &branch[b]->refs);
		for (uint32_t i = 0; i < branch[b]->n_load; i++)
			set_load(c, sym, branch[b]->load[i]);
		refs_join(c, &sym->stores, &branch[b]->stores);
	}
	for (uint32_t i = 0; i < stores.n; i++) {
		struct slice name = stores.ref[i].name;
		struct load load = {.kind = LOAD_RESOLVE};

		(void)alias(sym, name, &load);
		load.slot = refs_find(&sym->refs, name)->slot;
		set_load(c, sym, load);
	}
}

static void
visit_all(struct compile *c, struct symbols *sym, const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		visit(c, sym, list->node[i]);
}

static void
visit_args(struct compile *c, struct symbols *sym, const struct call_args *args)
{
	visit_all(c, sym, &args->pos);
	for (uint32_t i = 0; i < args->n_kw; i++)
		visit(c, sym, args->kw[i].value);
	visit(c, sym, args->star);
	visit(c, sym, args->star_star);
}

/* Targets of for, as parameters. */
static void
visit_params(struct compile *c, struct symbols *sym, const struct node *target)
{
	if (target->kind == N_NAME)
		declare_param(c, sym, value_slice(target->value));
	else
		for (uint32_t i = 0; i < target->list.n; i++)
			visit_params(c, sym, target->list.node[i]);
}

/* The first walk: the names one frame reads and writes itself, in order. */
static void
visit(struct compile *c, struct symbols *sym, struct node *node)
{
	struct symbols *branch[3];

	if (!node)
		return;
	if (++c->depth > DEPTH_MAX)
		compile_fail(c, node->line, "nested too deeply");
	switch (node->kind) {
	case N_NAME:
		if (node->op == NODE_PARAM)
			declare_param(c, sym, value_slice(node->value));
		else if (node->op == NODE_STORE)
			store(c, sym, value_slice(node->value));
		else
			read_name(c, sym, value_slice(node->value));
		break;
	case N_NSREF:
		read_name(c, sym, value_slice(node->value));
		break;
	case N_IF:
		visit(c, sym, node->a);
		for (int b = 0; b < 3; b++)
			branch[b] = symbols_copy(c, sym);
		visit_all(c, branch[0], &node->list);
		for (struct node *elif = node->b; elif; elif = elif->b) {
			struct node alone = *elif;

			alone.b = NULL;
			visit(c, branch[1], &alone);
		}
		if (node->c)
			visit_all(c, branch[2], &node->c->list);
		branch_update(c, sym, branch);
		break;
	case N_MACRO:
		store(c, sym, value_slice(node->value));
		break;
	case N_SET:
		visit(c, sym, node->b);
		visit(c, sym, node->a);
		break;
	case N_FOR:
		visit(c, sym, node->b);
		break;
	case N_CALL_BLOCK:
	case N_FILTER_BLOCK:
	case N_SET_BLOCK:
		visit(c, sym, node->a);
		break;
	case N_WITH:
		visit_all(c, sym, &node->body->defaults);
		break;
	case N_SCOPE:
		break;
	case N_CALL:
	case N_FILTER:
	case N_TEST:
		visit(c, sym, node->a);
		visit_args(c, sym, node->args);
		break;
	default:
		visit(c, sym, node->a);
		visit(c, sym, node->b);
		visit(c, sym, node->c);
		visit(c, sym, node->d);
		visit_all(c, sym, &node->list);
	}
	c->depth--;
}

/* What a frame does on entry, its names of the context entered in the template's table. */
static struct loads
finish(struct compile *c, const struct symbols *sym)
{
	struct loads loads = {compile_take(c, sym->n_load * sizeof(struct load)), 0};

	for (uint32_t i = 0; i < sym->n_load; i++) {
		struct load load = sym->load[i];

		if (load.kind == LOAD_PARAM)
			continue;
		for (uint32_t k = 0; load.kind == LOAD_RESOLVE && k < sym->refs.n; k++)
			if (sym->refs.ref[k].slot == load.slot)
				load.name = context_name(c, sym->refs.ref[k].name);
		loads.load[loads.n++] = load;
	}
	return loads;
}

/* Do these statements read this name, before something else of that name is written?  Jinja2
 * asks so for loop, caller, kwargs and varargs. */
struct asks {
	struct slice name;
	bool found, gone;
};

static void asks_node(struct asks *a, const struct node *node);

static void
asks_list(struct asks *a, const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		asks_node(a, list->node[i]);
}

static void
asks_args(struct asks *a, const struct call_args *args)
{
	asks_list(a, &args->pos);
	for (uint32_t i = 0; i < args->n_kw; i++)
		asks_node(a, args->kw[i].value);
	asks_node(a, args->star);
	asks_node(a, args->star_star);
}

static void
asks_node(struct asks *a, const struct node *node)
{
	if (!node || a->gone || a->found)
		return;
	switch (node->kind) {
	case N_NAME:
		if (!slice_eq(value_slice(node->value), a->name))
			return;
		if (node->op)
			a->gone = true;
		else
			a->found = true;
		return;
	case N_NSREF:
		return;
	case N_FOR:
		asks_node(a, node->a);
		asks_node(a, node->b);
		asks_list(a, &node->list);
		asks_list(a, &node->body->els);
		asks_node(a, node->c);
		return;
	case N_IF:
		asks_node(a, node->a);
		asks_list(a, &node->list);
		asks_node(a, node->b);
		if (node->c)
			asks_list(a, &node->c->list);
		return;
	case N_MACRO:
	case N_CALL_BLOCK:
	case N_WITH:
		asks_node(a, node->a);
		asks_list(a, &node->body->params);
		asks_list(a, &node->body->defaults);
		asks_list(a, &node->list);
		return;
	case N_FILTER_BLOCK:
		asks_list(a, &node->list);
		asks_node(a, node->a);
		return;
	case N_CALL:
	case N_FILTER:
	case N_TEST:
		asks_node(a, node->a);
		asks_args(a, node->args);
		return;
	default:
		asks_node(a, node->a);
		asks_node(a, node->b);
		asks_node(a, node->c);
		asks_node(a, node->d);
		asks_list(a, &node->list);
	}
}

static bool
asks_for(const struct node_list *list, const char *name)
{
	struct asks a = {.name = slice_str(name)};

	asks_list(&a, list);
	return a.found;
}

static bool writes_loop_in(const struct node_list *list);

static bool
writes_loop(const struct node *node)
{
	if (!node)
		return false;
	if (node->kind == N_NAME)
		return node->op == NODE_STORE && value_is_text(node->value, "loop");
	if (node->kind == N_FOR && writes_loop_in(&node->body->els))
		return true;
	if (node->kind == N_IF && node->c && writes_loop_in(&node->c->list))
		return true;
	return writes_loop(node->a) || (node->kind == N_IF && writes_loop(node->b)) ||
	       writes_loop_in(&node->list);
}

static bool
writes_loop_in(const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (writes_loop(list->node[i]))
			return true;
	return false;
}

static void
place_all(struct compile *c, const struct at *at, const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		place(c, at, list->node[i]);
}

static void
place_args(struct compile *c, const struct at *at, const struct call_args *args)
{
	place_all(c, at, &args->pos);
	for (uint32_t i = 0; i < args->n_kw; i++)
		place(c, at, args->kw[i].value);
	place(c, at, args->star);
	place(c, at, args->star_star);
}

static void
place_name(struct compile *c, const struct symbols *sym, struct slice name, uint32_t line,
	   uint16_t *slot, uint16_t *hops)
{
	const struct function *owner;
	const struct ref *ref = find(sym, name, &owner);

	if (!ref)
		compile_fail(c, line, "the name '%.*s' is not known here", (int)name.len, name.p);
	*slot = ref->slot;
	*hops = (uint16_t)(sym->function->depth - owner->depth);
}

/* The target of a for as its test's frame has it: the same names, other slots. */
static struct node *
copy_target(struct compile *c, const struct node *from)
{
	struct node *node = compile_take(c, sizeof(*node));

	*node = *from;
	node->list = (struct node_list){0};
	for (uint32_t i = 0; i < from->list.n; i++)
		node_push(c, &node->list, copy_target(c, from->list.node[i]));
	return node;
}

static void
place_for(struct compile *c, const struct at *at, struct node *node)
{
	struct body *body = node->body;
	struct function *f = body->is_function ? function_inner(c, at->sym->function)
					       : at->sym->function;
	struct symbols *inside = symbols_inner(c, at->sym, f);
	struct at loop = {inside, false, true}, other;

	if (body->is_function || asks_for(&node->list, "loop")) {
		node->op |= NODE_LOOP_VAR;
		body->loop_slot = declare_param(c, inside, SLICE_LIT("loop"));
	}
	visit_params(c, inside, node->a);
	visit_all(c, inside, &node->list);
	if (writes_loop(node))
		compile_fail(c, node->line,
			     "Can't assign to special loop variable in for-loop target");
	place(c, at, node->b);
	if (node->c) {
		other = (struct at){symbols_inner(c, at->sym, f), false, false};
		visit_params(c, other.sym, node->a);
		visit(c, other.sym, node->c);
		body->test_loads = finish(c, other.sym);
		body->test_target = copy_target(c, node->a);
		place(c, &other, body->test_target);
		place(c, &other, node->c);
	}
	body->loads = finish(c, inside);
	place(c, &loop, node->a);
	place_all(c, &loop, &node->list);
	if (body->els.n) {
		other = (struct at){symbols_inner(c, at->sym, f), false,
				    at->in_loop && !body->is_function};
		visit_all(c, other.sym, &body->els);
		body->els_loads = finish(c, other.sym);
		place_all(c, &other, &body->els);
	}
	if (body->is_function)
		body->slots = (uint16_t)f->slots;
}

/* The body of a macro or of a call block: a function. */
static void
place_macro(struct compile *c, const struct at *at, struct node *node)
{
	struct body *body = node->body;
	struct function *f = function_inner(c, at->sym->function);
	struct symbols *sym = symbols_inner(c, at->sym, f);
	struct at inside = {sym, false, false};
	uint32_t caller_at = UINT32_MAX;
	bool kwargs = true, varargs = true;

	visit_all(c, sym, &body->params);
	visit_all(c, sym, &body->defaults);
	visit_all(c, sym, &node->list);
	for (uint32_t i = 0; i < body->params.n; i++) {
		struct value name = body->params.node[i]->value;

		if (value_is_text(name, "caller"))
			caller_at = i;
		kwargs = kwargs && !value_is_text(name, "kwargs");
		varargs = varargs && !value_is_text(name, "varargs");
	}
	body->explicit_caller = caller_at != UINT32_MAX;
	body->caller = asks_for(&node->list, "caller");
	if (body->caller && body->explicit_caller) {
		if (caller_at < body->params.n - body->defaults.n)
			compile_fail(c, node->line, "the special \"caller\" argument must be "
						    "omitted or be given a default");
	} else if (body->caller) {
		body->caller_slot = declare_param(c, sym, SLICE_LIT("caller"));
	}
	body->kwargs = kwargs && asks_for(&node->list, "kwargs");
	if (body->kwargs)
		body->kwargs_slot = declare_param(c, sym, SLICE_LIT("kwargs"));
	body->varargs = varargs && asks_for(&node->list, "varargs");
	if (body->varargs)
		body->varargs_slot = declare_param(c, sym, SLICE_LIT("varargs"));
	visit_all(c, sym, &body->params);
	visit_all(c, sym, &body->defaults);
	visit_all(c, sym, &node->list);
	body->loads = finish(c, sym);
	place_all(c, &inside, &body->params);
	place_all(c, &inside, &body->defaults);
	place_all(c, &inside, &node->list);
	body->slots = (uint16_t)f->slots;
}

static const struct loads *
kept(struct compile *c, struct loads loads)
{
	struct loads *own = compile_take(c, sizeof(*own));

	*own = loads;
	return own;
}

/* Statements whose body has a frame in the same function. */
static void
place_inner(struct compile *c, const struct at *at, struct node *node)
{
	struct at inside = {symbols_inner(c, at->sym, at->sym->function), false, at->in_loop};

	if (node->kind == N_SCOPE && node->op)
		inside.in_loop = false;
	if (node->kind == N_WITH) {
		visit_all(c, inside.sym, &node->body->params);
		visit_all(c, inside.sym, &node->list);
		node->body->loads = finish(c, inside.sym);
		place_all(c, at, &node->body->defaults);
		place_all(c, &inside, &node->body->params);
		place_all(c, &inside, &node->list);
		return;
	}
	visit_all(c, inside.sym, &node->list);
	if (node->kind == N_FILTER_BLOCK)
		visit(c, inside.sym, node->a);
	if (node->kind == N_SET_BLOCK) {
		/* its filter is read in the block's frame, of which Jinja2 has not seen it */
		place(c, at, node->a);
		if (node->b)
			visit(c, inside.sym, node->b);
	}
	node->loads = kept(c, finish(c, inside.sym));
	place_all(c, &inside, &node->list);
	if (node->kind == N_FILTER_BLOCK)
		place(c, &inside, node->a);
	if (node->kind == N_SET_BLOCK && node->b)
		place(c, &inside, node->b);
}

static void
place_call(struct compile *c, const struct at *at, struct node *node)
{
	const char *what = node->kind == N_FILTER ? "filter" : "test";

	if (node->kind != N_CALL && !at->soft &&
	    !(node->kind == N_FILTER ? (const void *)node->filter : (const void *)node->test))
		compile_fail(c, node->line, "No %s named '%.*s'.", what, (int)node->value.n,
			     node->value.s);
	place(c, at, node->a);
	place_args(c, at, node->args);
}

/* The second walk: every name to its slot, frame by frame. */
static void
place(struct compile *c, const struct at *at, struct node *node)
{
	struct at soft = {at->sym, true, at->in_loop};

	if (!node)
		return;
	if (++c->depth > DEPTH_MAX)
		compile_fail(c, node->line, "nested too deeply");
	switch (node->kind) {
	case N_NAME:
	case N_NSREF:
		place_name(c, at->sym, value_slice(node->value), node->line, &node->slot,
			   &node->hops);
		break;
	case N_CALL:
	case N_FILTER:
	case N_TEST:
		place_call(c, at, node);
		break;
	case N_IF:
		place(c, &soft, node->a);
		place_all(c, &soft, &node->list);
		place(c, &soft, node->b);
		if (node->c)
			place_all(c, &soft, &node->c->list);
		break;
	case N_COND:
		place(c, &soft, node->a);
		place(c, &soft, node->b);
		place(c, &soft, node->c);
		break;
	case N_FOR:
		place_for(c, at, node);
		break;
	case N_MACRO:
		place_macro(c, at, node);
		place_name(c, at->sym, value_slice(node->value), node->line,
			   &node->body->store_slot, &node->body->store_hops);
		break;
	case N_CALL_BLOCK:
		place_macro(c, at, node);
		place(c, at, node->a);
		break;
	case N_FILTER_BLOCK:
	case N_SET_BLOCK:
	case N_WITH:
	case N_SCOPE:
		place_inner(c, at, node);
		break;
	case N_BREAK:
	case N_CONTINUE:
		if (!at->in_loop)
			compile_fail(c, node->line, "'%s' outside loop",
				     node->kind == N_BREAK ? "break" : "continue");
		break;
	default:
		place(c, at, node->a);
		place(c, at, node->b);
		place(c, at, node->c);
		place(c, at, node->d);
		place_all(c, at, &node->list);
	}
	c->depth--;
}

void
jinja_resolve(struct compile *c)
{
	struct function *root = function_inner(c, NULL);
	struct symbols *sym = symbols_inner(c, NULL, root);
	struct at at = {sym, false, false};

	visit_all(c, sym, &c->jinja->body);
	c->jinja->loads = finish(c, sym);
	place_all(c, &at, &c->jinja->body);
	c->jinja->slots = (uint16_t)root->slots;
}

bool
jinja_mentions(const struct jinja *jinja, struct slice name)
{
	for (uint32_t i = 0; i < jinja->n_name; i++)
		if (slice_eq(jinja->name[i], name))
			return !global_of_jinja(name);
	return false;
}
