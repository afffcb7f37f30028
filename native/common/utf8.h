// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef NCCLTUNE_COMMON_UTF8_H_
#define NCCLTUNE_COMMON_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune {

// Bytes of the character at the start of the text; 0 if the text does not start with one.
size_t Utf8SequenceLength(std::string_view text);

// Adds a code point, which must be no surrogate and at most U+10FFFF.
void AppendUtf8(uint32_t code, std::string* out);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_UTF8_H_
