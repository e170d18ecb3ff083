#include "train/state/together.h"

#include <fmt/format.h>

#include <utility>

namespace milepost::train {

std::vector<std::string> Together::gather(const std::function<std::string()>& work) const {
  if (group_ == nullptr) return {work()};
  std::exception_ptr own;
  std::string report;
  try {
    report = "+" + work();
  } catch (const CommunicationError& error) {
    if (!error.ranks().empty()) throw;  // of an operation: there is nobody to tell
    own = std::current_exception();
    report = std::string("-") + error.what();
  } catch (const std::exception& error) {
    own = std::current_exception();
    report = std::string("-") + error.what();
  }
  std::vector<std::string> reports = all_gather_strings(*group_, report);
  if (own) throw_told(own);
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].empty() || reports[rank][0] != '+') {
      throw_told(std::make_exception_ptr(
          CommunicationError(fmt::format("rank {} failed: {}", rank, reports[rank].substr(1)))));
    }
    reports[rank].erase(0, 1);
  }
  return reports;
}

void Together::throw_told(std::exception_ptr failure) const {
  told_ = std::move(failure);
  std::rethrow_exception(told_);
}

void Together::all(const std::function<void()>& work) const {
  gather([&] {
    work();
    return std::string();
  });
}

std::string Together::first(const std::function<std::string()>& work) const {
  return gather([&] { return is_first() ? work() : std::string(); })[0];
}

}  // namespace milepost::train
