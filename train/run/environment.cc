#include "train/run/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

std::optional<int64_t> number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw ValueError(fmt::format("{} must be an integer, got '{}'", name, printable(digits)));
  }
  return value;
}

}  // namespace

int64_t rank() { return number_in("RANK").value_or(0); }

int64_t world_size() {
  const int64_t ranks = number_in("WORLD_SIZE").value_or(1);
  if (ranks < 1) throw ValueError(fmt::format("WORLD_SIZE must be at least 1, got {}", ranks));
  return ranks;
}

int64_t local_rank() {
  const int64_t index = number_in("LOCAL_RANK").value_or(0);
  if (index < 0) throw ValueError(fmt::format("LOCAL_RANK must be at least 0, got {}", index));
  return index;
}

int64_t fake_world_size() {
  const std::optional<int64_t> ranks = number_in("NGPU");
  if (!ranks) throw ValueError("comm.mode fake_backend needs NGPU, the number of ranks to stand for");
  if (*ranks < 1) throw ValueError(fmt::format("NGPU must be at least 1, got {}", *ranks));
  if (rank() < 0 || rank() >= *ranks) {
    throw ValueError(fmt::format("RANK must be in [0, {}), got {}", *ranks, rank()));
  }
  return *ranks;
}

}  // namespace milepost::train
