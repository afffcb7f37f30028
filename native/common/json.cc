// SPDX-License-Identifier: Apache-2.0
#include "common/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace nccltune::json {
namespace {

// UTF-8 as defined by RFC 3629: no overlong forms, no surrogates, no code points above U+10FFFF.

// Returns the number of bytes of the first character; 0 if the text does not start with a valid
// character.
size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// Appends a code point as UTF-8. The code point must not be a surrogate or above U+10FFFF.
void AppendUtf8(uint32_t code, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, const Limits& limits, Error* error)
      : text_(text), limits_(limits), error_(error) {}

  bool ParseDocument(Value* out) {
    if (text_.size() > limits_.max_bytes) return Fail("text is longer than allowed");
    SkipBlanks();
    if (!ParseValue(out, 0)) return false;
    SkipBlanks();
    return at_ == text_.size() || Fail("unexpected text after the value");
  }

 private:
  bool Fail(const char* message) {
    error_->message = message;
    error_->offset = at_;
    return false;
  }

  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void SkipBlanks() {
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
      ++at_;
    }
  }

  bool ParseValue(Value* out, int depth) {
    if (AtEnd()) return Fail("unexpected end of text");
    switch (Peek()) {
      case '{':
        return ParseObject(out, depth + 1);
      case '[':
        return ParseArray(out, depth + 1);
      case '"': {
        std::string text;
        if (!ParseString(&text)) return false;
        *out = Value(std::move(text));
        return true;
      }
      case 't':
        return ParseWord("true", Value(true), out);
      case 'f':
        return ParseWord("false", Value(false), out);
      case 'n':
        return ParseWord("null", Value(nullptr), out);
      default:
        return ParseNumber(out);
    }
  }

  bool ParseWord(std::string_view word, Value value, Value* out) {
    if (text_.substr(at_, word.size()) != word) return Fail("not a JSON value");
    at_ += word.size();
    *out = std::move(value);
    return true;
  }

  bool ParseObject(Value* out, int depth) {
    if (depth > limits_.max_depth) return Fail("nested too deeply");
    ++at_;
    Value::Object members;
    SkipBlanks();
    if (!Take('}')) {
      do {
        SkipBlanks();
        const size_t key_at = at_;
        std::string key;
        if (Peek() != '"') return Fail("expected a string as the name of a member");
        if (!ParseString(&key)) return false;
        for (const Value::Member& member : members) {
          if (member.first != key) continue;
          at_ = key_at;
          return Fail("the object has this member twice");
        }
        if (members.size() == limits_.max_members) return Fail("the object has too many members");
        SkipBlanks();
        if (!Take(':')) return Fail("expected ':'");
        SkipBlanks();
        Value value;
        if (!ParseValue(&value, depth)) return false;
        members.emplace_back(std::move(key), std::move(value));
        SkipBlanks();
      } while (Take(','));
      if (!Take('}')) return Fail("expected ',' or '}'");
    }
    *out = Value(std::move(members));
    return true;
  }

  bool ParseArray(Value* out, int depth) {
    if (depth > limits_.max_depth) return Fail("nested too deeply");
    ++at_;
    Value::Array elements;
    SkipBlanks();
    if (!Take(']')) {
      do {
        SkipBlanks();
        Value value;
        if (!ParseValue(&value, depth)) return false;
        elements.push_back(std::move(value));
        SkipBlanks();
      } while (Take(','));
      if (!Take(']')) return Fail("expected ',' or ']'");
    }
    *out = Value(std::move(elements));
    return true;
  }

  bool ParseNumber(Value* out) {
    const size_t start = at_;
    bool whole = true;
    Take('-');
    if (!Take('0')) {
      if (!IsDigit(Peek())) return Fail("not a JSON value");
      SkipDigits();
    } else if (IsDigit(Peek())) {
      return Fail("a number must not start with 0");
    }
    if (Take('.')) {
      whole = false;
      if (!IsDigit(Peek())) return Fail("expected a digit after '.'");
      SkipDigits();
    }
    if (Peek() == 'e' || Peek() == 'E') {
      whole = false;
      ++at_;
      if (!Take('+')) Take('-');
      if (!IsDigit(Peek())) return Fail("expected a digit in the exponent");
      SkipDigits();
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc()) {
      *out = Value(integer);
      return true;
    }
    double real = 0;
    const std::from_chars_result result = std::from_chars(first, last, real);
    if (result.ec != std::errc()) {
      at_ = start;
      return Fail("the number is beyond a double's range");
    }
    *out = Value(real);
    return true;
  }

  void SkipDigits() {
    while (IsDigit(Peek())) ++at_;
  }

  bool ParseString(std::string* out) {
    ++at_;
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        if (!ParseEscape(out)) return false;
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) return Fail("control character in a string");
      const size_t length = Utf8SequenceLength(text_.substr(at_));
      if (length == 0) return Fail("not UTF-8");
      out->append(text_.substr(at_, length));
      at_ += length;
    }
    return Fail("the string has no end");
  }

  bool ParseEscape(std::string* out) {
    const size_t start = at_++;
    const char c = Peek();
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
    const size_t index = AtEnd() ? std::string_view::npos : kNames.find(c);
    if (index != std::string_view::npos) {
      out->push_back(kBytes[index]);
      ++at_;
      return true;
    }
    if (c != 'u') return Fail("unknown escape in a string");
    ++at_;
    uint32_t code = 0;
    if (!ParseHex4(&code)) return false;
    if (code >= 0xD800 && code <= 0xDBFF) {
      uint32_t low = 0;
      if (!Take('\\') || !Take('u') || !ParseHex4(&low) || low < 0xDC00 || low > 0xDFFF) {
        at_ = start;
        return Fail("half of a surrogate pair");
      }
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      at_ = start;
      return Fail("half of a surrogate pair");
    }
    AppendUtf8(code, out);
    return true;
  }

  bool ParseHex4(uint32_t* code) {
    const std::string_view digits = text_.substr(at_, 4);
    const char* const first = digits.data();
    const char* const last = first + digits.size();
    const std::from_chars_result result = std::from_chars(first, last, *code, 16);
    if (digits.size() != 4 || result.ec != std::errc() || result.ptr != last) {
      return Fail("expected four hexadecimal digits");
    }
    at_ += 4;
    return true;
  }

  std::string_view text_;
  const Limits& limits_;
  Error* error_;
  size_t at_ = 0;
};

void WriteString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (byte < 0x20) {
      out->append("\\u00");
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    } else {
      const size_t length = Utf8SequenceLength(text.substr(at));
      if (length == 0) {
        AppendUtf8(0xFFFD, out);
      } else {
        out->append(text.substr(at, length));
        at += length;
        continue;
      }
    }
    ++at;
  }
  out->push_back('"');
}

void WriteReal(double real, std::string* out) {
  if (!std::isfinite(real)) {
    out->append("null");
    return;
  }
  char digits[32];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof digits, real);
  const std::string_view text(digits, static_cast<size_t>(result.ptr - digits));
  out->append(text);
  if (text.find_first_of(".e") == std::string_view::npos) out->append(".0");
}

void WriteTo(const Value& value, std::string* out) {
  if (const bool* truth = value.AsBool()) {
    out->append(*truth ? "true" : "false");
  } else if (const int64_t* integer = value.AsInt()) {
    out->append(std::to_string(*integer));
  } else if (const double* real = value.AsDouble()) {
    WriteReal(*real, out);
  } else if (const std::string* text = value.AsString()) {
    WriteString(*text, out);
  } else if (const Value::Array* elements = value.AsArray()) {
    char before = '[';
    for (const Value& element : *elements) {
      out->push_back(before);
      WriteTo(element, out);
      before = ',';
    }
    out->append(elements->empty() ? "[]" : "]");
  } else if (const Value::Object* members = value.AsObject()) {
    char before = '{';
    for (const auto& [key, member] : *members) {
      out->push_back(before);
      WriteString(key, out);
      out->push_back(':');
      WriteTo(member, out);
      before = ',';
    }
    out->append(members->empty() ? "{}" : "}");
  } else {
    out->append("null");
  }
}

}  // namespace

bool Value::ToNumber(double* out) const {
  if (const int64_t* integer = AsInt()) {
    *out = static_cast<double>(*integer);
    return true;
  }
  if (const double* real = AsDouble()) {
    *out = *real;
    return true;
  }
  return false;
}

const Value* Value::Find(std::string_view key) const {
  const Object* members = AsObject();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

void Value::Set(std::string_view key, Value value) {
  if (!std::holds_alternative<Object>(data_)) data_ = Object();
  Object& members = std::get<Object>(data_);
  for (Member& member : members) {
    if (member.first != key) continue;
    member.second = std::move(value);
    return;
  }
  members.emplace_back(std::string(key), std::move(value));
}

void Value::Append(Value value) {
  if (!std::holds_alternative<Array>(data_)) data_ = Array();
  std::get<Array>(data_).push_back(std::move(value));
}

const char* Value::KindName() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a number",
                                           "a string", "an array",  "an object"};
  return kNames[data_.index()];
}

bool Parse(std::string_view text, Value* out, Error* error, const Limits& limits) {
  *error = Error();
  *out = Value();
  if (Parser(text, limits, error).ParseDocument(out)) return true;
  *out = Value();
  return false;
}

std::string Write(const Value& value) {
  std::string out;
  WriteTo(value, &out);
  return out;
}

Fields::Fields(const Value& value) : value_(value) {
  if (value.AsObject() == nullptr) Fail(std::string("expected an object, not ") + value.KindName());
}

Fields& Fields::Fail(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  return *this;
}

const Value* Fields::Take(std::string_view key, bool required) {
  known_.push_back(key);
  const Value* member = value_.Find(key);
  if (member != nullptr && !member->IsNull()) return member;
  if (required) Fail("'" + std::string(key) + "' is missing");
  return nullptr;
}

Fields& Fields::String(std::string_view key, std::string* out, bool required) {
  const Value* member = Take(key, required);
  if (member == nullptr) return *this;
  const std::string* text = member->AsString();
  if (text == nullptr) {
    return Fail("'" + std::string(key) + "' must be a string, not " + member->KindName());
  }
  *out = *text;
  return *this;
}

Fields& Fields::Integer(std::string_view key, int64_t* out, int64_t low, int64_t high,
                        bool required) {
  const Value* member = Take(key, required);
  if (member == nullptr) return *this;
  const int64_t* integer = member->AsInt();
  if (integer == nullptr) {
    return Fail("'" + std::string(key) + "' must be an integer, not " + member->KindName());
  }
  if (*integer < low || *integer > high) {
    return Fail("'" + std::string(key) + "' must be from " + std::to_string(low) + " to " +
                std::to_string(high));
  }
  *out = *integer;
  return *this;
}

Fields& Fields::Required(std::string_view key, std::string* out) { return String(key, out, true); }
Fields& Fields::Optional(std::string_view key, std::string* out) { return String(key, out, false); }

Fields& Fields::Required(std::string_view key, int64_t* out, int64_t low, int64_t high) {
  return Integer(key, out, low, high, true);
}
Fields& Fields::Optional(std::string_view key, int64_t* out, int64_t low, int64_t high) {
  return Integer(key, out, low, high, false);
}

Fields& Fields::Optional(std::string_view key, bool* out) {
  const Value* member = Take(key, false);
  if (member == nullptr) return *this;
  const bool* truth = member->AsBool();
  if (truth == nullptr) {
    return Fail("'" + std::string(key) + "' must be a boolean, not " + member->KindName());
  }
  *out = *truth;
  return *this;
}

Fields& Fields::Optional(std::string_view key, const Value** out) {
  const Value* member = Take(key, false);
  if (member != nullptr) *out = member;
  return *this;
}

std::string Fields::Finish() {
  if (!error_.empty()) return error_;
  for (const Value::Member& member : *value_.AsObject()) {
    if (std::find(known_.begin(), known_.end(), member.first) != known_.end()) continue;
    std::string valid;
    for (const std::string_view key : known_) valid += " " + std::string(key);
    return "'" + member.first + "' is not known here; valid:" + valid;
  }
  return "";
}

}  // namespace nccltune::json
