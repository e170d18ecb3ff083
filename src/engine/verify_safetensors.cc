// How a safetensors file or folder is verified:
//
// 1. With an index, it says which files there are: each must exist and hold what it is said to hold. Without
// one, every
//    *.safetensors directly in the folder counts.
// 2. Each file's header is checked by the format's rules. A tensor name may occur once, unless its files are
// pieces of it
//    (DCP_SHARDING_INFO): these must cover it.
// 3. A file that the index does not name is stale. When it holds names that the index gives to other files it
// is an error,
//    since programs that look for files first would load other values.
// 4. The format has no checksums: with `payloads` the bytes are read only to see that the disk gives them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "engine/report_progress.h"
#include "engine/verify_parts.h"
#include "format/json_events.h"
#include "format/plain_name.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/format/safetensors.h"

namespace milepost {
namespace {

constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr size_t kMaxNamed = 10;

// All members of "weight_map" whose file name is not a plain one. The strict reader stops at the first; here
// all are wanted.
class EscapingNames final : public JsonEvents {
 public:
  struct Name {
    std::string tensor, file;
  };
  std::vector<Name> names;

  void key(int depth, std::string& name) override {
    if (depth == 1) in_map_ = name == "weight_map";
    if (depth == 2) tensor_ = name;
  }
  void value(int depth, const JsonValue& value) override {
    if (depth == 2 && in_map_ && value.kind == JsonKind::kString && !is_plain_name(*value.text)) {
      names.push_back({tensor_, *value.text});
    }
  }
  void end(int) override {}

 private:
  bool in_map_ = false;
  std::string tensor_;
};

class SafetensorsCheck {
 public:
  explicit SafetensorsCheck(VerifyJob& job) : job_(job) {
    job.report.format = format_name(CheckpointFormat::kSafetensors);
  }

  void folder() {
    for (const FileInfo& file : job_.listing) {
      if (!file.is_regular) continue;
      if (file.name.ends_with(".safetensors")) present_.push_back(file.name);
      if (file.name == safetensors::kIndexName) indexed_ = true;
    }
    if (indexed_) read_index();
    check_missing_files();
    for (const std::string& name : present_) file(name);
    if (indexed_) check_weight_map();
    finish();
  }

  void single_file(const std::string& name) {
    file(name);
    finish();
  }

 private:
  // Step 1.
  void read_index() {
    ++job_.report.files;
    try {
      const std::unique_ptr<ByteSource> source = job_.open(safetensors::kIndexName);
      try {
        index_ = safetensors::read_index(*source);
      } catch (const FormatError& error) {
        if (error.code() != ErrorCode::kPathEscape) throw;
        report_escapes(*source);
      }
    } catch (const Error& error) {
      job_.findings.add(error, {safetensors::kIndexName});
    }
    for (const auto& [tensor, file] : index_.weight_map) {
      weight_map_.emplace(tensor, file);
      tensors_of_[file].push_back(tensor);
    }
  }

  void report_escapes(const ByteSource& source) {
    EscapingNames escapes;
    parse_json(read_all(source, kMaxIndexBytes), 0, escapes);
    for (const auto& [tensor, file] : escapes.names) {
      job_.findings.error(
          ErrorCode::kPathEscape, {safetensors::kIndexName, tensor},
          fmt::format("the index says it is in '{}', which is not a plain name of a file in this folder",
                      printable(file)),
          "the file was not opened");
    }
  }

  void check_missing_files() {
    for (const auto& [file, tensors] : tensors_of_) {
      if (std::binary_search(present_.begin(), present_.end(), file)) continue;
      std::string names;
      for (size_t i = 0; i < tensors.size() && i < kMaxNamed; ++i) {
        names += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(tensors[i], 80));
      }
      if (tensors.size() > kMaxNamed) names += fmt::format(" and {} more", tensors.size() - kMaxNamed);
      job_.findings.error(ErrorCode::kMissingFile, {file},
                          "the index names this file, but it is missing; it holds " + names,
                          "fetch the file again");
    }
  }

  // Step 2.
  void file(const std::string& name) {
    const bool is_named = !indexed_ || tensors_of_.contains(name);
    safetensors::Header header;
    ++job_.report.files;
    try {
      const std::unique_ptr<ByteSource> source = job_.open(name);
      header = safetensors::read_header(*source);
      if (is_named) files_.push_back({name, source->size()});
    } catch (const Error& error) {
      job_.findings.add(error, {name});
      unreadable_.insert(name);
      return;
    }
    for (const std::string& warning : header.warnings)
      job_.findings.warning(ErrorCode::kBadFormat, {name}, warning);
    if (!is_named) {
      check_stray(name, header);
      return;
    }
    for (const safetensors::Entry& entry : header.entries) {
      if (indexed_) {
        check_against_index(name, entry);
      } else {
        check_unique(name, entry);
      }
    }
  }

  void check_unique(const std::string& name, const safetensors::Entry& entry) {
    const auto [it, added] = first_.try_emplace(entry.name, First{name, !entry.saved_offsets.empty()});
    if (added || (it->second.is_piece && !entry.saved_offsets.empty())) return;
    job_.findings.error(ErrorCode::kDuplicate, {name, entry.name, entry.offset},
                        fmt::format("{} holds a tensor of this name too", printable(it->second.file)),
                        "remove the file that does not belong here");
  }

  void check_against_index(const std::string& name, const safetensors::Entry& entry) {
    const auto it = weight_map_.find(entry.name);
    if (it == weight_map_.end()) {
      job_.findings.warning(ErrorCode::kMissingKey, {name, entry.name, entry.offset},
                            "the index does not name this tensor, so it is left out");
    } else if (it->second != name && !unreadable_.contains(it->second)) {
      job_.findings.warning(
          ErrorCode::kDuplicate, {name, entry.name, entry.offset},
          fmt::format("the index says this tensor is in {}, so it is left out here", printable(it->second)));
    } else {
      found_.insert(entry.name);
    }
    if (it != weight_map_.end() && it->second == name) total_size_ += entry.length;
  }

  void check_weight_map() {
    for (const auto& [tensor, file] : index_.weight_map) {
      const bool was_read =
          std::binary_search(present_.begin(), present_.end(), file) && !unreadable_.contains(file);
      if (!was_read || found_.contains(tensor)) continue;
      job_.findings.error(ErrorCode::kMissingKey, {file, tensor},
                          "the index says that this file holds the tensor, but it does not",
                          "fetch index and files again, from one release");
    }
    if (index_.total_size >= 0 && index_.total_size != total_size_ && !job_.findings.has_errors()) {
      job_.findings.warning(
          ErrorCode::kBadFormat, {safetensors::kIndexName},
          fmt::format("total_size is {}, but the tensors have {} bytes", index_.total_size, total_size_));
    }
  }

  // Step 3.
  void check_stray(const std::string& name, const safetensors::Header& header) {
    for (const safetensors::Entry& entry : header.entries) {
      const auto it = weight_map_.find(entry.name);
      if (it == weight_map_.end()) continue;
      job_.findings.error(
          ErrorCode::kDuplicate, {name, entry.name, entry.offset},
          fmt::format("the index does not name this file, yet it holds a tensor that the index gives to {}",
                      printable(it->second)),
          "programs that look for this file first would load other values: remove one of the two");
      return;
    }
    job_.findings.warning(ErrorCode::kExists, {name},
                          "stale: the index does not name this file, so it is left out");
  }

  // Step 4, and what only the whole can tell.
  void finish() {
    if (job_.options.payloads) read_payloads();
    Findings failures;
    const std::shared_ptr<const Checkpoint> checkpoint = job_.open_checkpoint(-1, failures);
    if (checkpoint) {
      job_.count_entries(checkpoint->catalog());
      job_.check_coverage(checkpoint->catalog(), {});
    } else if (!job_.findings.has_errors()) {
      job_.findings.append(std::move(failures));
    }
  }

  void read_payloads() {
    struct Part {
      size_t file;
      int64_t begin, end;
    };
    constexpr int64_t kPartBytes = 16 * kVerifyBlockBytes;
    std::vector<Part> parts;
    for (size_t i = 0; i < files_.size(); ++i) {
      expect_bytes(job_.options.progress, files_[i].size);
      job_.report.bytes_checked += files_[i].size;
      for (int64_t begin = 0; begin < files_[i].size; begin += kPartBytes) {
        parts.push_back({i, begin, std::min(files_[i].size, begin + kPartBytes)});
      }
    }
    std::vector<Findings> found(parts.size());
    std::vector<AlignedBuffer> blocks(static_cast<size_t>(job_.pool.num_threads()));
    job_.pool.run(static_cast<int64_t>(parts.size()), [&](int64_t index, int worker) {
      const Part& part = parts[static_cast<size_t>(index)];
      AlignedBuffer& block = blocks[static_cast<size_t>(worker)];
      if (block.size() == 0) block = AlignedBuffer(kVerifyBlockBytes);
      try {
        const std::unique_ptr<ByteSource> source = job_.open(files_[part.file].name);
        for (int64_t at = part.begin; at < part.end; at += kVerifyBlockBytes) {
          const int64_t n = std::min(kVerifyBlockBytes, part.end - at);
          source->read_at(at, block.span().first(static_cast<size_t>(n)));
        }
      } catch (const Error& error) {
        found[static_cast<size_t>(index)].add(error, {files_[part.file].name});
      }
      advance(job_.options.progress, part.end - part.begin);
    });
    for (Findings& part : found) job_.findings.append(std::move(part));
  }

  struct First {
    std::string file;
    bool is_piece;
  };
  struct Shard {
    std::string name;
    int64_t size;
  };

  VerifyJob& job_;
  bool indexed_ = false;
  std::vector<std::string> present_;  // *.safetensors of the folder, sorted
  safetensors::Index index_;
  std::unordered_map<std::string, std::string> weight_map_;
  std::map<std::string, std::vector<std::string>> tensors_of_;  // by file named in the index
  std::unordered_map<std::string, First> first_;  // without an index: where a name was met first
  std::set<std::string> found_, unreadable_;
  std::vector<Shard> files_;
  int64_t total_size_ = 0;
};

}  // namespace

void verify_safetensors_folder(VerifyJob& job) { SafetensorsCheck(job).folder(); }
void verify_safetensors_file(VerifyJob& job, const std::string& name) {
  SafetensorsCheck(job).single_file(name);
}

}  // namespace milepost
