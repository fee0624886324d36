/* actors/common/prompt/methods.h -- numbers for the names in methods.def. */
#pragma once

enum method_id {
	METHOD_NONE,
#define M(name, kinds, refused) METHOD_##name,
#include "actors/common/prompt/methods.def"
#undef M
	METHODS
};
