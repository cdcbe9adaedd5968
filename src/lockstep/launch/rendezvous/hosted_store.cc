#include "lockstep/launch/rendezvous/hosted_store.h"

#include <chrono>
#include <thread>

namespace lockstep::launch {

namespace {

constexpr std::chrono::seconds kGoodbye{5};

class HostedStore : public comm::Store {
 public:
  HostedStore(std::unique_ptr<comm::StoreServer> server, std::unique_ptr<RendezvousFile> file,
              std::unique_ptr<comm::Store> connection)
      : server_(std::move(server)), file_(std::move(file)), inner_(std::move(connection)) {}
  ~HostedStore() override {
    inner_.reset();
    const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
    while (server_->connections() > 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void set(const std::string& key, const std::string& value) override { inner_->set(key, value); }
  std::string get(const std::string& key, comm::Duration timeout) override {
    return inner_->get(key, timeout);
  }
  std::optional<std::string> try_get(const std::string& key) override { return inner_->try_get(key); }
  int64_t add(const std::string& key, int64_t amount) override { return inner_->add(key, amount); }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return inner_->compare_set(key, expected, desired);
  }
  void append(const std::string& key, const std::string& value) override { inner_->append(key, value); }
  void wait(const std::vector<std::string>& keys, comm::Duration timeout) override {
    inner_->wait(keys, timeout);
  }
  bool check(const std::vector<std::string>& keys) override { return inner_->check(keys); }
  bool remove(const std::string& key) override { return inner_->remove(key); }
  std::vector<std::string> keys() override { return inner_->keys(); }
  void push(const std::string& queue, const std::string& value) override { inner_->push(queue, value); }
  std::optional<std::string> pop(const std::string& queue, comm::Duration timeout) override {
    return inner_->pop(queue, timeout);
  }
  int64_t queue_length(const std::string& queue) override { return inner_->queue_length(queue); }
  std::unique_ptr<comm::Store> clone() override { return inner_->clone(); }

 private:
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<RendezvousFile> file_;
  std::unique_ptr<comm::Store> inner_;
};

}  // namespace

std::unique_ptr<comm::Store> host_store(std::unique_ptr<comm::StoreServer> server,
                                        std::unique_ptr<RendezvousFile> file,
                                        std::unique_ptr<comm::Store> connection) {
  return std::make_unique<HostedStore>(std::move(server), std::move(file), std::move(connection));
}

}  // namespace lockstep::launch
