/* actors/common/sanitized.h -- SANITIZED: 1 under AddressSanitizer, 0 without.
 *
 * Its leak check needs ptrace: what keeps others from a process's memory is not done there.
 */
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
