#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "milepost/base/error.h"
#include "text/json_node.h"
#include "text/newer_characters.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

constexpr size_t kFirstStackBytes = size_t{64} << 10;
constexpr size_t kMaxStackBytes = size_t{64} << 20;  // of address space; taken as it is needed
constexpr uint32_t kMaxHeapKib = 64 << 10;
constexpr uint32_t kMaxSteps = 20'000'000;  // of one match: below a second
constexpr uint32_t kMaxDepth = 1'000'000;

template <auto Release>
struct Releaser {
  template <typename T>
  void operator()(T* resource) const {
    Release(resource);
  }
};

using CompileContext = std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;
using CodePtr = std::unique_ptr<pcre2_code, Releaser<pcre2_code_free>>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message(int code) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  CodePtr code;
  bool is_resumable = false, is_literal = false;
};

struct RegexScratch::Memory {
  std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>> match;
  std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Releaser<pcre2_jit_stack_free>> stack;
};

// Made when a regex first needs it: most scratches belong to stages without one.
RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

namespace {

CodePtr compile(std::string_view pattern, uint32_t options) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  size_t offset = 0;
  CodePtr code(
      pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | options, &error, &offset, context.get()));
  if (code == nullptr) {
    throw FormatError(ErrorCode::kBadFormat,
                      fmt::format("the regex cannot be used: {} (near byte {} of '{}')", message(error),
                                  offset, printable(pattern, 120)));
  }
  // Without it (no executable memory) matching is slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return code;
}

}  // namespace

Regex Regex::oniguruma(std::string_view pattern) {
  auto code = std::make_unique<Code>();
  code->code = compile(pcre2_pattern(pattern), PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  uint32_t lookbehind = 0, matches_empty = 0;
  pcre2_pattern_info(code->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
  pcre2_pattern_info(code->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  code->is_resumable = lookbehind == 0 && matches_empty == 0;
  return Regex(std::move(code));
}

Regex Regex::literal(std::string_view text) {
  auto code = std::make_unique<Code>();
  code->code = compile(text, PCRE2_LITERAL);
  code->is_resumable = !text.empty();
  code->is_literal = true;
  return Regex(std::move(code));
}

bool Regex::is_resumable() const { return code_->is_resumable; }

std::string_view Regex::matchable(std::string_view text, RegexScratch* scratch) const {
  return code_->is_literal ? text : with_stand_ins(text, &scratch->text_);
}

Regex::Outcome Regex::find(std::string_view text, size_t from, bool more_follows, RegexScratch* scratch,
                           TextRange* match) const {
  if (scratch->memory_ == nullptr) {
    auto memory = std::make_unique<RegexScratch::Memory>();
    memory->match.reset(pcre2_match_data_create(1, nullptr));
    memory->context.reset(pcre2_match_context_create(nullptr));
    memory->stack.reset(pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr));
    if (memory->match == nullptr || memory->context == nullptr) throw std::bad_alloc();
    if (memory->stack != nullptr) {
      pcre2_jit_stack_assign(memory->context.get(), nullptr, memory->stack.get());
    }
    pcre2_set_match_limit(memory->context.get(), kMaxSteps);
    pcre2_set_depth_limit(memory->context.get(), kMaxDepth);
    pcre2_set_heap_limit(memory->context.get(), kMaxHeapKib);
    scratch->memory_ = std::move(memory);
  }
  const RegexScratch::Memory& memory = *scratch->memory_;
  const uint32_t options = PCRE2_NO_UTF_CHECK | (more_follows ? PCRE2_PARTIAL_HARD : 0u);
  const int result = pcre2_match(code_->code.get(), units(text), text.size(), from, options,
                                 memory.match.get(), memory.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return Outcome::kNone;
  if (result == PCRE2_ERROR_PARTIAL) return Outcome::kUndecided;
  if (result < 0) {
    FormatError error(ErrorCode::kTooLarge,
                      fmt::format("the tokenizer's regex gives up on this text: {}", message(result)));
    error.set_offset(static_cast<int64_t>(from));
    throw error;
  }
  const size_t* offsets = pcre2_get_ovector_pointer(memory.match.get());
  *match = {std::min(offsets[0], offsets[1]), offsets[1]};
  return Outcome::kFound;
}

Regex read_regex(const JsonNode& node) {
  const std::optional<JsonNode> literal = node.find("String"), regex = node.find("Regex");
  if (literal.has_value() == regex.has_value()) {
    throw node.error(ErrorCode::kBadFormat, "want {\"String\": TEXT} or {\"Regex\": PATTERN}");
  }
  if (literal) return Regex::literal(literal->text());
  try {
    return Regex::oniguruma(regex->text());
  } catch (FormatError& error) {
    error.set_key(regex->pointer());
    throw;
  }
}

bool MatchWalk::find_next() {
  while (search_from_ <= text_.size()) {
    if (regex_.find(text_, search_from_, false, scratch_, &found_) != Regex::Outcome::kFound) return false;
    if (found_.begin < found_.end || !had_match_ || found_.end != last_match_end_) {
      search_from_ = last_match_end_ = found_.end;
      had_match_ = true;
      return true;
    }
    if (search_from_ == text_.size()) return false;
    next_code_point(text_, &search_from_);
  }
  return false;
}

bool MatchWalk::next(MatchRange* range) {
  if (has_match_) {
    has_match_ = false;
    done_ = found_.end;
    *range = {found_.begin, found_.end, true};
    return true;
  }
  if (!is_over_) {
    if (find_next()) {
      if (found_.begin > done_) {
        *range = {done_, found_.begin, false};
        has_match_ = true;
      } else {
        done_ = found_.end;
        *range = {found_.begin, found_.end, true};
      }
      return true;
    }
    is_over_ = true;
  }
  if (done_ == text_.size()) return false;
  *range = {done_, text_.size(), false};
  done_ = text_.size();
  return true;
}

}  // namespace milepost::text
