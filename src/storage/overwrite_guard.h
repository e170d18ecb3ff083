// Tells a checkpoint's folder or file, which may be overwritten on request, from any other.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "milepost/storage/storage.h"

namespace milepost {

// Whether torch, TorchTitan, Hugging Face or Milepost put a file of this name into a checkpoint's folder.
bool is_checkpoint_file_name(std::string_view name);

// Whether the file is empty or starts as one of torch.save (of any version) or of safetensors does.
bool is_checkpoint_file(Storage& storage, const std::string& path);

// The first entry of `folder`, in order of names, that no checkpoint has; nullopt when there is none. The
// folder `sharded` with nothing but .safetensors files belongs to one, other folders do not.
std::optional<std::string> find_stranger(Storage& storage, const std::string& folder);

}  // namespace milepost
