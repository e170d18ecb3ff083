// Lines of the training log, on standard error in the form of TorchTitan's:
//
//   [milepost] 2026-01-31 12:00:00,123 - root - INFO - Training completed
//
// Any thread may log; a line is written by one call.
#pragma once

#include <string_view>

namespace milepost::train {

enum class LogLevel : unsigned char { kInfo, kWarning, kError };

void log(LogLevel level, std::string_view text);
inline void log_info(std::string_view text) { log(LogLevel::kInfo, text); }
inline void log_warning(std::string_view text) { log(LogLevel::kWarning, text); }
inline void log_error(std::string_view text) { log(LogLevel::kError, text); }

}  // namespace milepost::train
