#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "json.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"
#include "milepost/text/stream_encoder.h"
#include "milepost/text/tokenizer.h"

namespace milepost::cli {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;
constexpr int64_t kLargeBytes = int64_t{256} << 20;

// A file, or standard input, from its beginning to its end.
class Input {
 public:
  explicit Input(const std::optional<std::string>& path) {
    if (!path) return;
    const StorageLocation location = resolve_location(*path);
    file_ = location.storage->open_read(location.path);
  }

  std::string name() const { return file_ ? file_->name() : "standard input"; }
  int64_t num_read() const { return num_read_; }

  // Up to kPartBytes more; empty at the end.
  std::string_view next() {
    buffer_.resize(kPartBytes);
    size_t count = 0;
    if (file_) {
      count = static_cast<size_t>(std::min<int64_t>(kPartBytes, file_->size() - num_read_));
      if (count > 0) file_->read_at(num_read_, std::as_writable_bytes(std::span(buffer_).first(count)));
    } else {
      count = read_standard_input();
    }
    num_read_ += static_cast<int64_t>(count);
    return std::string_view(buffer_).substr(0, count);
  }

 private:
  size_t read_standard_input() {
    for (;;) {
      const ssize_t count = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) {
        throw StorageError(ErrorCode::kIo, "standard input could not be read", "standard input", errno);
      }
    }
  }

  std::unique_ptr<ByteSource> file_;
  std::string buffer_;
  int64_t num_read_ = 0;
};

class Tokenize final : public Command {
 public:
  const char* name() const override { return "tokenize"; }
  const char* summary() const override { return "Turn text into token ids, or back"; }
  const char* description() const override {
    return "Prints the ids that the tokenizer in DIR (tokenizer.json, or vocab.json with merges.txt, ...) "
           "gives to "
           "the text of FILE or of standard input, which must be UTF-8: what training will see of it. The "
           "text is "
           "one document, and is read in parts where the tokenizer allows it, so that it may be longer than "
           "memory.";
  }
  const char* examples() const override {
    return "  milepost tokenize tests/assets/tokenizer notes.txt\n"
           "  echo 'Hello world' | milepost tokenize tests/assets/deepseek_v3 --pieces\n"
           "  milepost tokenize tests/assets/deepseek_v3 book.txt --count\n"
           "  echo 72 105 | milepost tokenize tests/assets/tokenizer --decode\n";
  }

  void declare(Flags& flags) override {
    flags.positional("DIR", &folder_, "the tokenizer's folder");
    flags.text("FILE", &file_, "", "the text (default: standard input)");
    flags.flag("--pieces", &pieces_, "print a line for each token: its id and how the vocabulary spells it");
    flags.flag("--count", &count_, "print only how many tokens there are");
    flags.flag("--decode", &decode_, "FILE holds ids with spaces between; print their text");
    flags.flag("--add-bos", &add_bos_, "put the token for the beginning of a document first");
    flags.flag("--add-eos", &add_eos_, "put the token for the end of a document last");
  }

  int run(const Terminal& terminal) override {
    if (pieces_ + count_ + decode_ > 1) throw ValueError("--pieces, --count and --decode exclude each other");
    tokenizer_ = text::Tokenizer::load(folder_);
    for (const std::string& warning : tokenizer_->warnings()) warn(terminal, warning);
    Input input(file_);
    try {
      decode_ ? decode(terminal, &input) : encode(terminal, &input);
    } catch (Error& error) {
      error.set_path(input.name());
      throw;
    }
    return kDone;
  }

 private:
  static void warn(const Terminal& terminal, std::string_view what) {
    fmt::print(stderr, "{} {}\n", terminal.paint_error(Colour::kYellow, "milepost: warning:"), what);
  }

  void encode(const Terminal& terminal, Input* input) {
    text::StreamEncoder encoder(tokenizer_, add_bos_, add_eos_);
    std::vector<int32_t> ids;
    bool has_warned = encoder.is_bounded();
    for (std::string_view part = input->next(); !part.empty(); part = input->next()) {
      encoder.feed(part, &ids);
      take(terminal, &ids);
      if (!has_warned && input->num_read() >= kLargeBytes) {
        has_warned = true;
        warn(terminal, "this tokenizer sees a text as one: all of it is held in memory");
      }
    }
    encoder.finish(&ids);
    take(terminal, &ids);
    if (terminal.json()) {
      report_["count"] = num_tokens_;
      terminal.write(json_text(report_));
    } else if (count_) {
      terminal.print("{}\n", num_tokens_);
    } else if (!pieces_) {
      terminal.write("\n");
    }
  }

  // Prints ids, or keeps them for the JSON document, and empties `ids`.
  void take(const Terminal& terminal, std::vector<int32_t>* ids) {
    fmt::memory_buffer out;
    if (terminal.json() && !report_.is_object()) report_ = Json::object();
    for (const int32_t id : *ids) {
      ++num_tokens_;
      if (count_) continue;
      if (terminal.json()) {
        report_["ids"].push_back(id);
        if (pieces_) report_["pieces"].push_back(tokenizer_->token_of(id).value_or(""));
      } else if (pieces_) {
        fmt::format_to(std::back_inserter(out), "{:>7}  {}\n", id,
                       printable(tokenizer_->token_of(id).value_or("")));
      } else {
        fmt::format_to(std::back_inserter(out), "{}{}", num_tokens_ == 1 ? "" : " ", id);
      }
    }
    ids->clear();
    terminal.write({out.data(), out.size()});
  }

  void decode(const Terminal& terminal, Input* input) const {
    std::string digits;
    for (std::string_view part = input->next(); !part.empty(); part = input->next()) digits += part;
    std::vector<int32_t> ids;
    const char* at = digits.data();
    const char* const end = at + digits.size();
    const auto skip_spaces = [&] {
      while (at != end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) ++at;
    };
    for (skip_spaces(); at != end; skip_spaces()) {
      int32_t id = 0;
      const auto [next, error] = std::from_chars(at, end, id);
      if (error != std::errc() || id < 0) {
        FormatError refusal(ErrorCode::kBadFormat, "want ids: numbers with spaces between");
        refusal.set_offset(at - digits.data());
        throw refusal;
      }
      ids.push_back(id);
      at = next;
    }
    const std::string text = tokenizer_->decode(ids, false);
    terminal.write(terminal.json() ? json_text({{"text", text}}) : text);
  }

  std::string folder_;
  std::optional<std::string> file_;
  bool pieces_ = false, count_ = false, decode_ = false, add_bos_ = false, add_eos_ = false;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t num_tokens_ = 0;
  Json report_;
};

}  // namespace

std::unique_ptr<Command> tokenize_command() { return std::make_unique<Tokenize>(); }

}  // namespace milepost::cli
