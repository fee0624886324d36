/* tests/fuzz/fuzz_expression.c -- any text is an expression or is refused with a place and a
 * reason; what is taken ends, and says what its tree says. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/expression_naive.h"
#include "tests/unit/expressions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum expression_place places[] = {
		EXPRESSION_CANDIDATE, EXPRESSION_OBJECTIVE, EXPRESSION_WHEN, EXPRESSION_TAG,
		EXPRESSION_PREFER,
	};
	struct expression_error error;
	struct expression *e = NULL;
	struct expression_tree tree;
	struct expression_value want;
	struct world world;
	char say[400];

	if (size == 0)
		return 0;
	enum expression_place place = places[data[0] % 5];
	struct slice text = slice_of((const char *)data + 1, size - 1);
	int r = expression_compile(text, place, &world_names, &e, &error);

	if (r < 0) {
		expression_error_say(&error, say, sizeof say);
		if (r != -EINVAL || error.offset > text.len || !error.expected[0] || e)
			__builtin_trap();
		return 0;
	}
	world_make(&world);
	if (data[0] & 0x40)
		world.facts.candidate = NULL;
	if (data[0] & 0x80)
		world.facts = (struct facts){0};
	if (expression_parse(text, &tree, &error) < 0 ||
	    expression_check(&tree, place, &world_names, false) < 0)
		__builtin_trap();
	want = naive(tree.root, &world.facts);
	double d = expression_number(e, &world.facts);
	enum expression_truth t = expression_test(e, &world.facts);

	if (want.type == TYPE_UNKNOWN ? t != EXPRESSION_UNKNOWN || !isnan(d) :
	    want.type == TYPE_BOOL ? t != (want.b ? EXPRESSION_YES : EXPRESSION_NO) :
	    t != EXPRESSION_UNKNOWN)
		__builtin_trap();
	expression_tree_free(&tree);
	expression_free(&e);
	return 0;
}
