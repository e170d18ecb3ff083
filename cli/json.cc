#include "json.h"

#include <cmath>

namespace milepost::cli {

std::string json_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json json_error(const Error& error) {
  Json json = {{"code", error_code_name(error.code())}, {"message", error.what()}};
  if (!error.path().empty()) json["path"] = error.path();
  if (!error.key().empty()) json["key"] = error.key();
  if (error.offset() >= 0) json["offset"] = error.offset();
  return json;
}

}  // namespace milepost::cli
