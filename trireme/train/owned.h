// Something of a family of classes, given by value or by pointer, held by pointer: what lets call sites say
// `.metrics = {metric::Accuracy()}` where the members are virtual.
//
//   Owned<Metric> one = metric::Accuracy();                          // a copy of its own
//   auto kept = std::make_shared<metric::Accuracy>();
//   Owned<Metric> other = kept;                                      // the caller's, to look at later
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace trireme::train {

/// A small value; copies mean the same object. Default constructed it holds nothing.
template <typename Base>
class Owned {
 public:
  Owned() = default;
  template <typename T>
    requires std::derived_from<std::remove_const_t<T>, std::remove_const_t<Base>>
  Owned(std::shared_ptr<T> pointer) : pointer_(std::move(pointer)) {}  // NOLINT(google-explicit-constructor)
  template <std::derived_from<std::remove_const_t<Base>> T>
  Owned(T value) : pointer_(std::make_shared<T>(std::move(value))) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return pointer_ != nullptr; }
  Base* operator->() const { return pointer_.get(); }
  Base& operator*() const { return *pointer_; }
  const std::shared_ptr<Base>& pointer() const { return pointer_; }

 private:
  std::shared_ptr<Base> pointer_;
};

}  // namespace trireme::train
