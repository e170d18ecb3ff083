// The parts of a conversion: what is taken, and what files come out of it. Planning moves no payload bytes,
// so that a dry run is the plan alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/journal.h"
#include "engine/write_images.h"
#include "milepost/engine/convert.h"

namespace milepost {

// Entries that go into the target, in checkpoint order.
struct Selection {
  struct Entry {
    std::string_view name;
    int64_t tensor = -1, object = -1;  // catalog index; one of them is set
    DType dtype = DType::kFloat32;     // of the target, for tensors
  };
  std::vector<Entry> entries;
  std::vector<std::string> skipped;  // "name: why"
  std::vector<std::string> warnings;
  int64_t num_tensors = 0, num_objects = 0, num_casts = 0;
  int64_t bytes_in = 0;
};

// Applies match, dtype and the target's limits. Throws ValueError (a glob that matches nothing; a cast of
// block-quantised codes) and FormatError kUnsupported with the complete list of what the target cannot hold.
Selection select_entries(const Checkpoint& source, const ConvertOptions& options);

// Throws FormatError (kHole, kOverlap, kOutOfBounds, kMissingFile) unless every selected tensor is wholly
// there.
void require_sound(const Checkpoint& source, const Selection& selection);

struct OutputSet {
  std::unique_ptr<PayloadSource> payloads;
  std::vector<OutputFile> files;
  struct SmallFile {
    std::string name;
    std::function<void(ByteSink&)> write;
  };
  std::vector<SmallFile> small_files;        // written after the others: indexes
  std::vector<std::shared_ptr<void>> alive;  // what images and small files look at
};

OutputSet plan_dcp_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                          const ConvertOptions& options, const std::string& checkpoint_id);
OutputSet plan_safetensors_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                                  const ConvertOptions& options,
                                  const std::string& single_file_name);  // empty: a folder
OutputSet plan_torch_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                            const std::string& file_name);

// convert(), with another policy for its journal.
ConvertReport convert_with(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& location,
                           const ConvertOptions& options, const Journal::Policy& policy);

}  // namespace milepost
