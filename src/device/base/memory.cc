#include "device/base/memory.h"

#include <sys/mman.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "device/base/lock_order.h"

namespace gpuckpt::device {
namespace {

// A header before each block says its class; blocks above the largest class are mappings of their
// own.
struct Header {
  uint64_t bin;    // or kMapped
  uint64_t bytes;  // of the mapping
};
constexpr uint64_t kMapped = 64;
constexpr unsigned kSmallest = 5, kLargest = 16;  // 32 B .. 64 KiB, header included
constexpr size_t kSlab = 1 << 20;

struct Free {
  Free* next;
};
Free* bins[kLargest + 1];
char* slab;
size_t slab_left;
Mutex heap_lock{kHeapLock};

void* map(size_t bytes) {
  long address =
      sys::mmap(own_address(bytes), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  return sys::failed(address) ? nullptr : reinterpret_cast<void*>(address);
}

unsigned bin_of(size_t bytes) {
  unsigned bin = kSmallest;
  while ((size_t{1} << bin) < bytes) ++bin;
  return bin;
}

}  // namespace

void* allocate(size_t bytes) {
  size_t total = bytes + sizeof(Header);
  if (total < bytes) return nullptr;
  if (total > (size_t{1} << kLargest)) {
    total = (total + 4095) & ~size_t{4095};
    auto* header = static_cast<Header*>(map(total));
    if (!header) return nullptr;
    *header = {kMapped, total};
    return header + 1;
  }
  unsigned bin = bin_of(total);
  size_t rounded = size_t{1} << bin;
  Header* header;
  {
    MutexLock guard(heap_lock);
    if (bins[bin]) {
      header = reinterpret_cast<Header*>(bins[bin]);
      bins[bin] = bins[bin]->next;
    } else {
      if (slab_left < rounded) {
        void* fresh = map(kSlab);
        if (!fresh) return nullptr;
        slab = static_cast<char*>(fresh);  // what was left of the old one (< 64 KiB) is lost
        slab_left = kSlab;
      }
      header = reinterpret_cast<Header*>(slab);
      slab += rounded;
      slab_left -= rounded;
    }
  }
  *header = {bin, rounded};
  __builtin_memset(header + 1, 0, rounded - sizeof(Header));
  return header + 1;
}

void release(void* block) {
  if (!block) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (header->bin == kMapped) {
    sys::munmap(reinterpret_cast<uint64_t>(header), header->bytes);
    return;
  }
  unsigned bin = static_cast<unsigned>(header->bin);
  auto* free_block = reinterpret_cast<Free*>(header);
  MutexLock guard(heap_lock);
  free_block->next = bins[bin];
  bins[bin] = free_block;
}

namespace {

void pull(RangeNode* node) {
  uint64_t largest = node->size;
  if (node->left && node->left->largest > largest) largest = node->left->largest;
  if (node->right && node->right->largest > largest) largest = node->right->largest;
  node->largest = largest;
}

void split(RangeNode* node, uint64_t key, RangeNode** low, RangeNode** high) {
  if (!node) {
    *low = *high = nullptr;
  } else if (node->begin < key) {
    split(node->right, key, &node->right, high);
    *low = node;
    pull(node);
  } else {
    split(node->left, key, low, &node->left);
    *high = node;
    pull(node);
  }
}

RangeNode* merge(RangeNode* low, RangeNode* high) {
  if (!low) return high;
  if (!high) return low;
  if (low->priority > high->priority) {
    low->right = merge(low->right, high);
    pull(low);
    return low;
  }
  high->left = merge(low, high->left);
  pull(high);
  return high;
}

uint32_t priority_of(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>(key >> 32);
}

RangeNode* erase_from(RangeNode* root, RangeNode* node) {
  if (root == node) return merge(root->left, root->right);
  if (node->begin < root->begin)
    root->left = erase_from(root->left, node);
  else
    root->right = erase_from(root->right, node);
  pull(root);
  return root;
}

void pull_path(RangeNode* root, const RangeNode* node) {
  if (root != node) pull_path(node->begin < root->begin ? root->left : root->right, node);
  pull(root);
}

}  // namespace

void RangeTree::insert(RangeNode* node) {
  node->left = node->right = nullptr;
  node->largest = node->size;
  node->priority = priority_of(node->begin);
  RangeNode *low, *high;
  split(root_, node->begin, &low, &high);
  root_ = merge(merge(low, node), high);
}

void RangeTree::erase(RangeNode* node) { root_ = erase_from(root_, node); }

void RangeTree::resize(RangeNode* node, uint64_t begin, uint64_t size) {
  node->begin = begin;
  node->size = size;
  pull_path(root_, node);
}

RangeNode* RangeTree::floor(uint64_t address) const {
  RangeNode* best = nullptr;
  for (RangeNode* n = root_; n;) {
    if (n->begin <= address) {
      best = n;
      n = n->right;
    } else {
      n = n->left;
    }
  }
  return best;
}

RangeNode* RangeTree::ceiling(uint64_t address) const {
  RangeNode* best = nullptr;
  for (RangeNode* n = root_; n;) {
    if (n->begin >= address) {
      best = n;
      n = n->left;
    } else {
      n = n->right;
    }
  }
  return best;
}

RangeNode* RangeTree::covering(uint64_t address) const {
  RangeNode* node = floor(address);
  return node && address - node->begin < node->size ? node : nullptr;
}

RangeNode* RangeTree::first_fit(uint64_t size) const {
  RangeNode* n = root_;
  if (!n || n->largest < size) return nullptr;
  for (;;) {
    if (n->left && n->left->largest >= size) {
      n = n->left;
    } else if (n->size >= size) {
      return n;
    } else {
      n = n->right;
    }
  }
}

}  // namespace gpuckpt::device
