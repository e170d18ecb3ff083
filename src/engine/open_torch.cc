#include "engine/opened_checkpoint.h"
#include "milepost/format/torch_zip.h"

namespace milepost {

void open_torch_file(OpenedParts& parts, const std::string& file_name) {
  parts.format = CheckpointFormat::kTorchSave;
  std::shared_ptr<const ByteSource> file = parts.storage->open_read(join_path(parts.folder, file_name));
  torch_zip::refuse_legacy(*file);
  torch_zip::PthFile pth = torch_zip::read_pth(*file, file_name);
  parts.catalog = std::move(pth.catalog);
  auto document = std::make_shared<const pickle::Document>(std::move(pth.document));
  for (const pickle::Value* value : pth.object_values) parts.objects.push_back({document, value, file});
  parts.document = std::move(document);
  parts.details.emplace_back("writer", "torch.save");
}

}  // namespace milepost
