// FaultyStorage: a wrapper that fails, or dies, at the n-th call. For tests and rehearsals of recovery.
//
//   auto disk = faulty_storage(simulated_disk(), parse_faults("cut=any:12"));
//
// Calls are counted from 1, per operation, over all files of the wrapper. A fault hits before the wrapped
// storage sees the call, so that "cut=any:13" leaves what 12 mutating calls did.
//
// Threads: as Storage; which of several concurrent calls is the n-th is up to scheduling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost {

// One planned fault: call number `call` of operation `op` throws StorageError with `error_number`, as the
// system would.
//
// `op` is one of open, read, write, truncate, sync, close, list, stat, mkdir, rename, exchange, remove (of
// files, folders and trees), syncdir, lock, free; or any, which counts every mutating call: write, truncate,
// sync, close, mkdir, rename, exchange, remove, syncdir, open for writing.
struct Fault {
  std::string op;
  int64_t call = 1;
  // 0: instead of failing, the process "dies": this call and all later ones of any operation throw PowerCut.
  // ENOSYS on exchange makes it return false, as on a file system without it.
  int error_number = 0;
};

// Thrown by every call after the cut. Not derived from Error, so that no handler mistakes it for a failure it
// can report and clean up after.
struct PowerCut {};

class FaultyStorage : public Storage {
 public:
  // How many calls of `op` (as in Fault, `any` included) have been made, the failed ones too: what a
  // rehearsal loops over. 0 for an unknown name.
  virtual int64_t calls(std::string_view op) const = 0;
};

// `inner` is shared, and stays usable by others. Sources that the wrapper opens have a null data(), so that
// every read counts.
std::shared_ptr<FaultyStorage> faulty_storage(std::shared_ptr<Storage> inner, std::vector<Fault> faults);

// Parses "fail=write:37:EIO" or "cut=any:12"; several joined by '&'; empty for none. Throws ValueError, which
// lists the known operations or error names.
std::vector<Fault> parse_faults(std::string_view query);

}  // namespace milepost
