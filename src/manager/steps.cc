#include "milepost/manager/steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/safetensors.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/policy.h"
#include "milepost/storage/lasting.h"

namespace milepost::manager {
namespace {

bool is_file(Storage& storage, const std::string& folder, std::string_view name) {
  const std::optional<FileInfo> info = storage.stat(join_path(folder, name));
  return info && info->is_regular;
}

// Where the disk cannot say, there is a step all the same, and a damaged one.
bool claims_to_be_a_checkpoint(Storage& storage, const std::string& folder) {
  try {
    return is_file(storage, folder, dcp::kMetadataName) || is_file(storage, folder, safetensors::kIndexName);
  } catch (const StorageError& error) {
    if (!is_lasting(error)) throw;
    return true;
  }
}

bool has_model(const Catalog& catalog) {
  return std::any_of(catalog.tensors().begin(), catalog.tensors().end(),
                     [](const Catalog::Tensor& tensor) { return is_model_key(tensor.name); });
}

bool has_part(const Catalog& catalog, std::string_view part) {
  const std::string prefix = std::string(part) + ".";
  const auto is_of_part = [&](const auto& entry) { return entry.name.starts_with(prefix); };
  return std::any_of(catalog.objects().begin(), catalog.objects().end(), is_of_part) ||
         std::any_of(catalog.tensors().begin(), catalog.tensors().end(), is_of_part);
}

// "no optimizer and no train_state"; empty when nothing is lacking.
std::string lacking(const Catalog& catalog, bool has_model, const std::vector<std::string>& parts) {
  std::vector<std::string> absent;
  if (!has_model) absent.emplace_back("no model");
  for (const std::string& part : parts) {
    if (!has_part(catalog, part)) absent.push_back("no " + part);
  }
  if (absent.empty()) return {};
  const std::string last = absent.back();
  absent.pop_back();
  return absent.empty() ? last : fmt::format("{} and {}", fmt::join(absent, ", "), last);
}

// What stands in the way of a file: how many bytes of it the index counts on.
std::vector<int64_t> needed_bytes(const Catalog& catalog) {
  std::vector<int64_t> needed(catalog.files().size(), 0);
  const auto need = [&](const Location& location) {
    if (location.file == Location::kNoFile) return;
    int64_t& bytes = needed[location.file];
    bytes = std::max(bytes, location.offset + location.length);
  };
  for (int64_t chunk = 0; chunk < catalog.num_chunks(); ++chunk) need(catalog.chunk_location(chunk));
  for (const Catalog::Object& object : catalog.objects()) need(object.location);
  return needed;
}

std::vector<std::string> parts_needed(int64_t step, const std::vector<std::string>& parts) {
  return step == 0 ? std::vector<std::string>{} : parts;
}

// Goes through the steps below `limit`, the newest first, until one is full.
void look_below(const StorageLocation& folder, const std::vector<std::string>& parts, int64_t limit,
                Survey* survey) {
  const std::vector<int64_t> steps = list_steps(folder);
  for (auto number = steps.rbegin(); number != steps.rend(); ++number) {
    if (*number >= limit) continue;
    Step step = classify_step(folder, *number, parts_needed(*number, parts));
    if (step.kind == Step::Kind::kFull) {
      survey->newest = std::move(step);
      return;
    }
    survey->passed_over.push_back(std::move(step));
  }
}

}  // namespace

std::optional<int64_t> step_number(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  if (std::to_string(number) != digits) return std::nullopt;
  return number;
}

std::vector<int64_t> list_steps(const StorageLocation& folder) {
  std::vector<int64_t> steps;
  const std::optional<FileInfo> info = folder.storage->stat(folder.path);
  if (!info || !info->is_directory) return steps;
  for (const FileInfo& entry : folder.storage->list(folder.path)) {
    const std::optional<int64_t> number = entry.is_directory ? step_number(entry.name) : std::nullopt;
    if (!number) continue;
    if (claims_to_be_a_checkpoint(*folder.storage, join_path(folder.path, entry.name))) {
      steps.push_back(*number);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void require_complete(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog();
  const std::vector<int64_t> needed = needed_bytes(catalog);
  for (size_t i = 0; i < needed.size(); ++i) {
    const Catalog::File& file = catalog.files()[i];
    if (needed[i] == 0 || file.size_bytes >= needed[i]) continue;
    FormatError error(file.size_bytes < 0 ? ErrorCode::kMissingFile : ErrorCode::kTruncated,
                      file.size_bytes < 0 ? fmt::format("its file {} is missing", printable(file.path))
                                          : fmt::format("its file {} has {} bytes, {} are needed",
                                                        printable(file.path), file.size_bytes, needed[i]));
    error.set_path(checkpoint.path());
    throw error;
  }
}

Step classify_step(const StorageLocation& folder, int64_t number, const std::vector<std::string>& parts) {
  Step step;
  step.number = number;
  const StorageLocation location{folder.storage, step_path(folder.path, number)};
  try {
    const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(location);
    if (checkpoint->format() != CheckpointFormat::kDcp) {
      step.kind = Step::Kind::kHuggingFace;
      step.why = "it holds only the model, as safetensors";
      return step;
    }
    require_complete(*checkpoint);
    const bool is_of_a_model = has_model(checkpoint->catalog());
    const std::string absent = lacking(checkpoint->catalog(), is_of_a_model, parts);
    step.kind = absent.empty()  ? Step::Kind::kFull
                : is_of_a_model ? Step::Kind::kModelOnly
                                : Step::Kind::kNoModel;
    if (!absent.empty()) step.why = "it holds " + absent;
  } catch (const FormatError& error) {
    step.kind = Step::Kind::kDamaged;
    step.why = fmt::format("it is not complete: {}", error.summary());
  } catch (const StorageError& error) {
    if (!is_lasting(error)) throw;
    step.kind = Step::Kind::kDamaged;
    step.why = fmt::format("it cannot be read: {}", error.what());
  }
  return step;
}

Survey survey_steps(const StorageLocation& folder, const std::vector<std::string>& parts) {
  Survey survey;
  const std::optional<FileInfo> info = folder.storage->stat(folder.path);
  survey.folder_exists = info && info->is_directory;
  look_below(folder, parts, std::numeric_limits<int64_t>::max(), &survey);
  return survey;
}

void pass_over_newest(const StorageLocation& folder, const std::vector<std::string>& parts, std::string why,
                      Survey* survey) {
  const int64_t number = survey->newest->number;
  survey->passed_over.push_back({number, Step::Kind::kDamaged, std::move(why)});
  survey->newest.reset();
  look_below(folder, parts, number, survey);
}

NamedStep look_up_step(const StorageLocation& folder, int64_t number, const std::vector<std::string>& parts) {
  const auto is_folder = [&](const std::string& path) {
    const std::optional<FileInfo> info = folder.storage->stat(path);
    return info && info->is_directory;
  };
  NamedStep found;
  found.folder_exists = is_folder(folder.path);
  if (!found.folder_exists) return found;
  if (is_folder(step_path(folder.path, number))) {
    found.step = classify_step(folder, number, parts_needed(number, parts));
  }
  if (!found.step || found.step->kind != Step::Kind::kFull) {
    found.there = list_steps(folder);
    return found;
  }
  for (const FileInfo& entry : folder.storage->list(folder.path)) {
    const std::optional<int64_t> other = entry.is_directory ? step_number(entry.name) : std::nullopt;
    if (other && *other > number) found.newer.push_back(*other);
  }
  std::sort(found.newer.begin(), found.newer.end());
  return found;
}

bool is_own(const Checkpoint& checkpoint) { return checkpoint.catalog().find_object(kRunKey).has_value(); }

}  // namespace milepost::manager
