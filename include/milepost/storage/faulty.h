// FaultyStorage: a wrapper that fails, or loses what was not synced, at the n-th call. For tests and rehearsals of recovery.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost {

// One planned fault: call number `call` (from 1) of operation `op` throws StorageError with `error_number`, as the system would. `op` is one of
// open, read, write, truncate, sync, close, list, stat, mkdir, rename, exchange, remove, syncdir, lock, free, or any (counts every mutating call:
// write, truncate, sync, close, mkdir, rename, exchange, remove, syncdir, open for writing).
struct Fault {
  std::string op;
  int64_t call = 1;
  int error_number = 0;  // 0: instead of failing, the process "dies": this call and all later ones throw PowerCut
};

// Thrown by every call after the cut. Not derived from Error, so that no handler mistakes it for a failure it can report and clean up after.
struct PowerCut {};

class FaultyStorage;
std::shared_ptr<FaultyStorage> faulty_storage(std::shared_ptr<Storage> inner, std::vector<Fault> faults);

// Parses "fail=write:37:EIO" or "cut=any:12"; several joined by '&'. Throws ValueError.
std::vector<Fault> parse_faults(std::string_view query);

}  // namespace milepost
