/* actors/common/decide/member.c -- see member.h. */
#include "actors/common/decide/member.h"

#include <math.h>
#include <string.h>

#define PRICE_UNIT 1e-12        /* of struct manifest_price, a token */

const char *
member_group(const struct manifest *m, const struct manifest_member *member)
{
	const struct manifest_set *set = member_set(m, member);

	return set ? set->name : member_provider(m, member)->name;
}

const char *
member_model(const struct manifest *m, const struct manifest_member *member)
{
	const struct manifest_set *set = member_set(m, member);

	return set ? set->model
		   : member_provider(m, member)->models[member->provider_model].upstream;
}

void
member_prior(const struct manifest *m, const struct manifest_member *member, float ret[COEF_COUNT])
{
	const struct manifest_set *set = member_set(m, member);

	memset(ret, 0, COEF_COUNT * sizeof ret[0]);
	if (!set) {
		ret[COEF_BASE] = (float)member_provider(m, member)->prior_ttft_s;
		return;
	}
	ret[COEF_BASE] = (float)set->prior.base_s;
	ret[COEF_PREFILL] = (float)set->prior.prefill_s;
	ret[COEF_ATTENTION] = (float)set->prior.attention_s;
	ret[COEF_DECODE] = (float)set->prior.decode_s;
	ret[COEF_CONTEXT] = (float)set->prior.context_s;
	ret[COEF_STEP] = (float)set->prior.step_s;
}

double
member_cost(const struct manifest *m, const struct manifest_member *member, uint32_t prompt,
	    uint32_t cached, uint32_t completion)
{
	const struct manifest_provider *provider = member_provider(m, member);
	const struct manifest_price *price;

	if (!provider)
		return 0;
	price = &provider->models[member->provider_model].price;
	if (!price->known)
		return NAN;
	if (cached > prompt)
		cached = prompt;
	if (completion == UINT32_MAX)
		completion = MEMBER_COMPLETION;
	return PRICE_UNIT * ((double)price->input * (prompt - cached) +
			     (double)price->cached_input * cached +
			     (double)price->output * completion);
}
