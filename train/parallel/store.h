// The groups of a job whose ranks find each other through a given store: what ProcessGroups::join does once
// it has one. For tests whose ranks are threads.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "train/parallel/process_groups.h"

namespace milepost::train {

// Every rank calls it, with a store that all of them share.
std::unique_ptr<ProcessGroups> join_through(const DeviceMesh& mesh, c10::intrusive_ptr<c10d::Store> store,
                                            std::chrono::milliseconds timeout);

}  // namespace milepost::train
