// SPDX-License-Identifier: Apache-2.0
// UTF-8 as defined by RFC 3629: no overlong forms, no surrogates, no code points above U+10FFFF.
#ifndef NCCLTUNE_COMMON_UTF8_H_
#define NCCLTUNE_COMMON_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune {

// Returns the number of bytes of the first character; 0 if the text does not start with a valid
// character.
size_t Utf8SequenceLength(std::string_view text);

// Appends a code point as UTF-8. The code point must not be a surrogate or above U+10FFFF.
void AppendUtf8(uint32_t code, std::string* out);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_UTF8_H_
