#include "milepost/config/config_file.h"

#include <fmt/format.h>

#include <set>

#include "config/json.h"
#include "config/old_keys.h"
#include "config/registry_tables.h"
#include "config/toml.h"
#include "milepost/base/error.h"

namespace milepost::config {
namespace {

constexpr int kDeepest = 64;

// Builds the document; notes the first key that occurs twice in an object and stops at deep nesting.
Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) {
      throw FormatError(ErrorCode::kTooLarge,
                        fmt::format("lists and objects are nested more than {} deep", kDeepest));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      FormatError error(ErrorCode::kDuplicate, "the key occurs twice", "keep one of them");
      error.set_key(parsed.get<std::string>());
      throw error;
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& parse_error) {
    FormatError error(ErrorCode::kBadFormat, "this is not JSON",
                      "a TOML file needs a name that ends in .toml");
    error.set_offset(static_cast<int64_t>(parse_error.byte));
    throw error;
  } catch (const Json::out_of_range&) {
    throw FormatError(ErrorCode::kTooLarge, "a number is beyond what a double can hold");
  }
}

// Takes a text field out of the document; "" when it is not there.
std::string take_text(const std::string& key, Json* document) {
  if (!document->contains(key)) return "";
  const Json value = (*document)[key];
  document->erase(key);
  if (!value.is_string()) {
    FormatError error(ErrorCode::kBadFormat, "want a text");
    error.set_key(key);
    throw error;
  }
  return value.get<std::string>();
}

// A file that changes the model means the loss to go with it.
void follow_vocab_size(int64_t old_size, Trainer* trainer) {
  const auto follow = [&](std::optional<int64_t>* size) {
    if (*size == old_size) *size = vocab_size(*trainer);
  };
  if (auto* chunked = std::get_if<ChunkedLoss>(&trainer->loss)) follow(&chunked->loss_fn.global_vocab_size);
  if (auto* whole = std::get_if<CrossEntropyLoss>(&trainer->loss)) follow(&whole->global_vocab_size);
  if (auto* mtp = std::get_if<MtpLoss>(&trainer->loss)) follow(&mtp->global_vocab_size);
}

}  // namespace

ConfigFile parse_config_file(std::string_view path, std::string_view text) {
  try {
    Json document = path.ends_with(".toml") ? parse_toml(text) : parse_json(text);
    if (!document.is_object()) {
      throw FormatError(ErrorCode::kBadFormat, "want an object of sections at the top");
    }
    ConfigFile file;
    file.module = take_text("module", &document);
    file.entry = take_text("config", &document);
    translate_old_keys(&document);
    file.fields_json = document.dump(-1, ' ', false, Json::error_handler_t::replace);
    return file;
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
}

void apply_config_file(std::string_view path, const ConfigFile& file, Trainer* trainer) {
  try {
    const Json document = Json::parse(file.fields_json);
    const int64_t old_vocab_size = vocab_size(*trainer);
    read_json(document, trainer);
    if (!document.contains("loss")) follow_vocab_size(old_vocab_size, trainer);
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
}

std::string config_file_text(const Trainer& trainer, std::string_view module, std::string_view entry) {
  Json document = {{"module", module}, {"config", entry}};
  document.update(to_json(trainer));
  return document.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace milepost::config
