#include "milepost/data/token_source.h"

#include <utility>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr int64_t kMaxWarnings = 10;

}  // namespace

DocumentEncoder document_encoder(std::shared_ptr<const text::Tokenizer> tokenizer) {
  auto encoder = std::make_shared<text::Encoder>(tokenizer);
  return {.fingerprint = tokenizer->fingerprint(),
          .vocab_size = tokenizer->vocab_size(),
          .encode = [encoder](std::string_view text, std::vector<int32_t>* ids) {
            encoder->encode(text, /*add_bos=*/true, /*add_eos=*/true, ids);
          }};
}

EncodingSource::EncodingSource(std::unique_ptr<Documents> documents, DocumentEncoder encoder,
                               OnBadRecord on_bad_record)
    : documents_(std::move(documents)), encoder_(std::move(encoder)), on_bad_record_(on_bad_record) {}

void EncodingSource::append(int64_t document, std::vector<int32_t>* ids) {
  const size_t old_size = ids->size();
  try {
    documents_->read(document, &text_);
    try {
      encoder_.encode(text_, ids);
    } catch (FormatError& error) {
      error.set_path(documents_->place(document));
      throw;
    }
  } catch (const FormatError& error) {
    if (on_bad_record_ == OnBadRecord::kFail) throw;
    ids->resize(old_size);
    if (++num_skipped_ <= kMaxWarnings) {
      warnings_.push_back(std::string("Bad record passed over: ") + error.what());
    }
    if (num_skipped_ == kMaxWarnings) warnings_.push_back("More bad records are counted, not shown");
  }
}

std::vector<std::string> EncodingSource::take_warnings() { return std::exchange(warnings_, {}); }

std::string EncodingSource::cache_key() const {
  const std::string all = "tokens 1\n" + documents_->cache_key() + "\n" + encoder_.fingerprint + "\n" +
                          (on_bad_record_ == OnBadRecord::kSkip ? "skip" : "fail");
  return to_hex(sha256(as_bytes(all))).substr(0, 32);
}

}  // namespace milepost::data
