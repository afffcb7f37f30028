// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef NCCLTUNE_COMMON_UTF8_H_
#define NCCLTUNE_COMMON_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune {

// Returns the number of bytes of the first character; 0 if the text does not start with a valid
// one.
size_t Utf8SequenceLength(std::string_view text);

// Appends a code point. It must not be a surrogate, and at most U+10FFFF.
void AppendUtf8(uint32_t code, std::string* out);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_UTF8_H_
