// BufferedFile: a ByteSink over a WritableFile, for small files and for metadata that is made piece by piece.
#pragma once

#include <memory>
#include <string>

#include "milepost/storage/storage.h"

namespace milepost {

class BufferedFile final : public ByteSink {
 public:
  BufferedFile(Storage& storage, const std::string& path);
  void append(Bytes bytes) override;
  void finish(bool sync);  // writes the rest, syncs, closes; without it the file is abandoned

 private:
  void flush();
  std::unique_ptr<WritableFile> file_;
  ByteVector buffer_;
  int64_t written_ = 0;
};

}  // namespace milepost
