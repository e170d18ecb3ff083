// BufferedFile: a ByteSink over a WritableFile, for small files and for metadata that is made piece by piece.
#pragma once

#include <memory>
#include <string>

#include "milepost/base/checksum.h"
#include "milepost/storage/storage.h"

namespace milepost {

class BufferedFile final : public ByteSink {
 public:
  // All bytes go into `hash` too, where one is given; it must outlive this.
  BufferedFile(Storage& storage, const std::string& path, Sha256* hash = nullptr);
  void append(Bytes bytes) override;
  void finish(bool sync);  // writes the rest, syncs, closes; without it the file is abandoned

 private:
  void flush();
  std::unique_ptr<WritableFile> file_;
  Sha256* const hash_;
  ByteVector buffer_;
  int64_t written_ = 0;
};

}  // namespace milepost
