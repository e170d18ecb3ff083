#include "train/parallel/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace milepost::train {
namespace {

// As many as a step has in use at a time and another has not: a gather's and a scatter's.
constexpr size_t kMostFree = 4;
constexpr size_t kHugePage = size_t{2} << 20;

struct Mapping {
  void* data = nullptr;
  size_t size = 0;
};

Mapping map(size_t bytes) {
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return {data, size};
}

}  // namespace

struct BufferPool::Free {
  std::mutex mutex;
  std::vector<Mapping> mappings;  // GUARDED_BY(mutex), the one that was given back last at the end

  Free() = default;
  Free(const Free&) = delete;
  Free& operator=(const Free&) = delete;
  ~Free() {
    for (const Mapping& mapping : mappings) ::munmap(mapping.data, mapping.size);
  }

  // The smallest that is large enough, and not so large that most of it would lie idle.
  Mapping take(size_t bytes) {
    const std::scoped_lock lock(mutex);
    auto best = mappings.end();
    for (auto each = mappings.begin(); each != mappings.end(); ++each) {
      if (each->size < bytes || each->size / 2 > std::max(bytes, kHugePage)) continue;
      if (best == mappings.end() || each->size < best->size) best = each;
    }
    if (best == mappings.end()) return {};
    const Mapping found = *best;
    mappings.erase(best);
    return found;
  }

  void give_back(const Mapping& mapping) {
    const std::scoped_lock lock(mutex);
    mappings.push_back(mapping);
    if (mappings.size() <= kMostFree) return;
    ::munmap(mappings.front().data, mappings.front().size);
    mappings.erase(mappings.begin());
  }

  class Lease {
   public:
    Lease(std::shared_ptr<Free> free, Mapping mapping) : free_(std::move(free)), mapping_(mapping) {}
    ~Lease() { free_->give_back(mapping_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    std::shared_ptr<Free> free_;
    Mapping mapping_;
  };
};

BufferPool::BufferPool() : free_(std::make_shared<Free>()) {}

at::DataPtr BufferPool::take(int64_t bytes, at::Device device) {
  if (!device.is_cpu()) return c10::GetAllocator(device.type())->allocate(static_cast<size_t>(bytes));
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  Mapping mapping = free_->take(size);
  if (mapping.data == nullptr) mapping = map(size);
  auto lease = std::make_unique<Free::Lease>(free_, mapping);
  return {mapping.data, lease.release(), [](void* context) { delete static_cast<Free::Lease*>(context); },
          device};
}

at::Tensor BufferPool::empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(options.dtype().itemsize());
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, take(bytes, options.device()),
                             /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, sizes);
}

}  // namespace milepost::train
