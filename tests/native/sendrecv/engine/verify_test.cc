// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/verify.h"
#include "sendrecv/route.h"
#include "sendrecv/stand_in/processes.h"
#include "sendrecv/stand_in/soft_cuda.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    soft::UseGpu(0);
    std::string why;
    driver_ = CudaDriver::OfCurrent(*OpenCuda(&why), &why);
    EXPECT_NE(driver_, nullptr) << why;
    stream_ = driver_->NewStream();
    verifier_ = std::make_unique<Verifier>(
        *driver_, [this](const std::string& what) { wrong_.push_back(what); });
  }
  ~VerifyTest() override { driver_->DeleteStream(stream_); }

  void Finish() {
    ASSERT_TRUE(soft::Soon([&] { return driver_->IsComplete(stream_); }));
  }

  // Returns how many messages were compared while one of `bytes` went from `sent` to `received`.
  uint64_t Compare(DeviceAddress sent, DeviceAddress received, uint64_t bytes, uint64_t number) {
    const uint64_t before = ProcessCounts().Get(Route::kChecked).messages;
    EXPECT_TRUE(verifier_->Sum(stream_, sent, bytes, sums_.get(), number));
    EXPECT_TRUE(
        verifier_->Check(stream_, received, bytes, sums_.get(), number, "rank 0 to rank 1"));
    Finish();
    return ProcessCounts().Get(Route::kChecked).messages - before;
  }

  std::unique_ptr<CudaDriver> driver_;
  Stream stream_ = nullptr;
  std::unique_ptr<Sums> sums_ = std::make_unique<Sums>();
  std::vector<std::string> wrong_;
  std::unique_ptr<Verifier> verifier_;
};

TEST_F(VerifyTest, SameBytesAreRight) {
  for (const uint64_t bytes : {kMiB, kMiB + 3, 70 * kMiB + 5}) {
    const DeviceAddress one = soft::Fill(bytes, 7);
    const DeviceAddress other = soft::Fill(bytes, 7);
    EXPECT_EQ(Compare(one, other, bytes, 1), 1U);
    EXPECT_TRUE(wrong_.empty()) << wrong_.front();
    driver_->Free(one);
    driver_->Free(other);
  }
}

TEST_F(VerifyTest, OneOtherByteIsWrong) {
  // The last byte is part of the checksum for every size.
  for (const uint64_t bytes : {kMiB + 3, 70 * kMiB + 5}) {
    for (const uint64_t at : {uint64_t{0}, bytes - 1}) {
      const DeviceAddress one = soft::Fill(bytes, 7);
      const DeviceAddress other = soft::Fill(bytes, 7);
      ASSERT_EQ(
          soft::cuMemsetD8_v2(other + at, static_cast<uint8_t>(soft::Fetch(one + at, 1)[0] + 1), 1),
          soft::kCudaSuccess);
      wrong_.clear();
      EXPECT_EQ(Compare(one, other, bytes, 5), 1U);
      ASSERT_EQ(wrong_.size(), 1U) << bytes << " " << at;
      EXPECT_EQ(wrong_[0], "rank 0 to rank 1: message 5 of " + std::to_string(bytes) +
                               " bytes arrived with other bytes than were sent");
      driver_->Free(one);
      driver_->Free(other);
    }
  }
}

TEST_F(VerifyTest, ASumThatIsNotThereAnyMoreChecksNothing) {
  const DeviceAddress one = soft::Fill(kMiB, 1);
  const DeviceAddress other = soft::Fill(kMiB, 2);
  ASSERT_TRUE(verifier_->Sum(stream_, one, kMiB, sums_.get(), 3));
  ASSERT_TRUE(verifier_->Sum(stream_, one, kMiB, sums_.get(), 3 + Sums::kMessages));
  const uint64_t before = ProcessCounts().Get(Route::kChecked).messages;
  ASSERT_TRUE(verifier_->Check(stream_, other, kMiB, sums_.get(), 3, "a lane"));
  Finish();
  EXPECT_EQ(ProcessCounts().Get(Route::kChecked).messages, before);
  EXPECT_TRUE(wrong_.empty());
  driver_->Free(one);
  driver_->Free(other);
}

}  // namespace
}  // namespace nccltune::sendrecv
