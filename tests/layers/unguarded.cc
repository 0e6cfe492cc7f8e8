// Reads a guarded field without its mutex. Clang must refuse it: see layers.an_unguarded_access_is_refused.
#include "trireme/core/thread_annotations.h"

class Counter {
 public:
  int count() const { return count_; }

 private:
  trireme::Mutex mutex_;
  int count_ TRIREME_GUARDED_BY(mutex_) = 0;
};

int main() {
  return Counter().count();
}
