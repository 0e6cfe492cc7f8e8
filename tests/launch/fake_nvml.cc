// A stand-in for NVIDIA's management library on machines without a GPU: eight of them, with fixed UUIDs. It is found in
// place of the real one by LD_LIBRARY_PATH, so that the launcher under test takes its ordinary way.
#include <cstdint>
#include <cstdio>

namespace {

constexpr unsigned kCount = 8;
constexpr int kSuccess = 0;
constexpr int kInvalid = 2;

struct Memory {
  unsigned long long total, free, used;
};

unsigned index_of(const void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) - 1);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}

int nvmlShutdown() {
  return kSuccess;
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.42.01");
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kCount;
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= kCount) return kInvalid;
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return kSuccess;
}

int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%08x-1111-2222-3333-444444444444", 0xa0 + index_of(device));
  return kSuccess;
}

int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "Stand-in GPU");
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {80ull << 30, 79ull << 30, 1ull << 30};
  return kSuccess;
}
}
