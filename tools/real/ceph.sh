# shellcheck shell=bash disable=SC2154
# A Ceph cluster of one node in a folder, on loopback, with its S3 server: start_ceph FOLDER PORT. The object store is in memory;
# the one user has the keys tester and SECRETSECRET. Packages ceph-mon, ceph-osd, radosgw. Ends with the test: its processes carry
# the test's environment.

ceph_configuration() {
  local folder=$1 port=$2 number=$3
  cat <<CONF
[global]
fsid = $number
mon host = v2:127.0.0.1:$((port + 1))
public addr = 127.0.0.1
cluster addr = 127.0.0.1
public network = 127.0.0.0/8
auth allow insecure global id reclaim = false
keyring = $folder/keyring
run dir = $folder
log file = $folder/\$name.log
admin socket = $folder/\$name.asok
pid file = $folder/\$name.pid
mon data = $folder/mon
mon allow pool size one = true
mon max pg per osd = 1000
osd data = $folder/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd class load list = *
osd class default list = *
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
ms bind ipv6 = false
ms bind port min = $((port + 2))
ms bind port max = $((port + 40))
[osd]
keyring = $folder/osd/keyring
[client.admin]
rgw frontends = beast endpoint=127.0.0.1:$port
rgw dns name = 127.0.0.1
CONF
}

rgw_answers() { [[ $("$python" -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:$1/').status)" 2>/dev/null) == 200 ]]; }

start_ceph() {
  local folder=$1 port=$2 number disk
  number=$(cat /proc/sys/kernel/random/uuid) disk=$(cat /proc/sys/kernel/random/uuid)
  mkdir -p "$folder/mon" "$folder/osd"
  ceph_configuration "$folder" "$port" "$number" >"$folder/ceph.conf"
  export CEPH_CONF=$folder/ceph.conf
  monmaptool --create --addv a "[v2:127.0.0.1:$((port + 1))]" --fsid "$number" "$folder/monmap" || return 1
  ceph-authtool --create-keyring "$folder/keyring" --gen-key -n mon. --cap mon 'allow *' || return 1
  ceph-authtool "$folder/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' || return 1
  ceph-mon -i a --mkfs --monmap "$folder/monmap" --keyring "$folder/keyring" || return 1
  ceph-mon -i a -f &
  timeout 60 ceph osd new "$disk" || return 1
  timeout 60 ceph auth get-or-create osd.0 mon 'allow *' osd 'allow *' -o "$folder/osd/keyring" || return 1
  ceph-osd -i 0 --mkfs --osd-uuid "$disk" || return 1
  ceph-osd -i 0 -f &
  radosgw -n client.admin -f &
  until_true 300 rgw_answers "$port" || return 1
  timeout 120 radosgw-admin user create --uid tester --display-name tester --access-key tester --secret-key SECRETSECRET
}
