// Counters in folders as the kernel has them.
#include "lockstep/device/network_now.h"

#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::device {
namespace {

using namespace std::chrono_literals;

struct Kernel {
  base::TemporaryFolder folder;
  void write(const std::string& file, const std::string& text) const {
    const std::string path = folder.path() + "/" + file;
    base::make_folders(path.substr(0, path.rfind('/')));
    base::write_file_durable(path, text);
  }
  void interface(const std::string& name, const std::string& sent, const std::string& received) const {
    write("net/" + name + "/statistics/tx_bytes", sent + "\n");
    write("net/" + name + "/statistics/rx_bytes", received + "\n");
  }
  void port(const std::string& sent, const std::string& received) const {
    write("infiniband/mlx5_0/ports/1/counters/port_xmit_data", sent + "\n");
    write("infiniband/mlx5_0/ports/1/counters/port_rcv_data", received + "\n");
  }
};

TEST(NetworkNow, RatesSinceTheLookBefore) {
  const Kernel kernel;
  kernel.interface("lo", "0", "0");
  kernel.interface("eth0", "1000", "2000");
  kernel.write("net/eth0/speed", "1000\n");
  kernel.interface("docker0", "5", "5");
  kernel.write("net/docker0/speed", "-1\n");
  kernel.interface("odd", "not a number", "7");
  kernel.write("net/bonding_masters", "");
  kernel.port("100", "100");
  kernel.write("infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  NetworkWatch watch(kernel.folder.path());
  const auto begin = NetworkWatch::Clock::now() + 1h;
  EXPECT_TRUE(watch.look(begin).empty()) << "nothing has moved";
  kernel.interface("lo", "999999", "999999");
  kernel.interface("eth0", "5000", "2002");
  kernel.port("50000100", "100");
  const std::vector<LinkNow> links = watch.look(begin + 2s);
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].name, "mlx5_0 port 1");
  EXPECT_EQ(links[0].sent, 4 * 50e6 / 2);
  EXPECT_EQ(links[0].capacity, 25e9);
  EXPECT_EQ(links[1].name, "eth0");
  EXPECT_EQ(links[1].sent, 2000);
  EXPECT_EQ(links[1].received, 1);
  EXPECT_EQ(links[1].capacity, 125e6);
  kernel.interface("eth0", "10", "10");  // made again
  kernel.interface("wlan0", "10", "10");
  EXPECT_TRUE(watch.look(begin + 4s).empty());
  EXPECT_TRUE(NetworkWatch("/nowhere").look().empty());
}

}  // namespace
}  // namespace lockstep::device
