// Which bytes of a checkpoint several ranks want, and which ranks of a group read them for each other. Pure:
// no files, no communication.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "milepost/engine/load.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// What a rank tells the others of its load: where it runs, and which boxes of which tensors it wants. For
// ranks of one job that load the same checkpoint. `on_one_host`: ranks of one host share, too; the first
// rank's decides.
std::string describe_wants(const LoadPlan& plan, const std::string& host, bool on_one_host);

// Pieces that all ranks of the mesh's group `dimension` ("world": all ranks) want; the same list, of the same
// elements, on each of them.
struct SharedPieces {
  std::string dimension;
  std::vector<size_t> pieces;  // indexes into the plan's, in their order
};

// Decides, from all ranks' wants, what this one shares, in the order of dimensions that all ranks take. Equal
// boxes are shared in the largest group of the mesh whose ranks all want them; boxes that merely overlap are
// not. A group of one host shares nothing unless it is told to: what one has read, the others find in the
// host's page cache, which is faster (measured: 0.5 s against 1.2 s over loopback for 205 MB). Throws
// FormatError for bytes that are no wants.
std::vector<SharedPieces> share_reads(const LoadPlan& plan, const std::vector<std::string>& wants,
                                      const DeviceMesh& mesh);

// Where the elements of shared pieces lie in one stream of bytes, each piece at a multiple of 16, and which
// elements a stretch of the stream has.
class PieceStream {
 public:
  static constexpr int64_t kAlignment = 16;
  PieceStream(const LoadPlan& plan, const std::vector<size_t>& pieces);

  int64_t size() const { return offsets_.back(); }
  struct Stretch {
    size_t piece;        // index into the plan's
    int64_t begin, end;  // elements
    int64_t place;       // bytes from the stretch's start
  };
  // Requires multiples of kAlignment, or the size.
  std::vector<Stretch> stretches(int64_t begin, int64_t end) const;

 private:
  const LoadPlan* plan_;
  std::vector<size_t> pieces_;
  std::vector<int64_t> offsets_;  // of pieces, and the end
};

}  // namespace milepost::train
