# shellcheck shell=bash disable=SC2154  # work is of common.sh
# A real Kubernetes without nodes: etcd, kube-apiserver with RBAC, its controllers and scheduler, all on loopback. Nodes are
# objects that nobody runs; what a kubelet would say of a pod is written by `pod_says`.
#
#     source kubernetes.sh               after common.sh; skips where LOCKSTEP_TEST_KUBERNETES names no folder with the servers
#     start_kubernetes                   $KUBECONFIG has the contexts admin, me (may submit) and nobody (has no rights)
#     admin get pods                     kubectl as its administrator
#
# The folder has kube-apiserver, kube-controller-manager, kube-scheduler and, unless it is in PATH, etcd; definitions of custom
# resources (JobSet and others) are in its crds/.

servers=${LOCKSTEP_TEST_KUBERNETES:-}
need_kubernetes() {
  local one
  need kubectl kubectl
  need openssl openssl
  [[ -n $servers ]] || skip "LOCKSTEP_TEST_KUBERNETES names no folder with kube-apiserver (docs/development.md)"
  PATH=$servers:$PATH
  for one in kube-apiserver kube-controller-manager kube-scheduler etcd; do
    command -v "$one" >/dev/null || skip "$servers has no $one (docs/development.md)"
  done
}

server_processes=
serve() {
  local name=$1
  shift
  "$name" "$@" >"$work/$name.log" 2>&1 &
  server_processes="$! $server_processes"
}
stop() {
  local pid
  for pid in $server_processes; do kill "$pid" 2>/dev/null; done
  for pid in $server_processes; do wait "$pid" 2>/dev/null; done
}

admin() { kubectl --context admin "$@"; }

start_kubernetes() {
  local port user manager=()
  port=$(free_port 3)
  openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
  for user in admin me nobody; do echo "$user-token,$user,$user$([[ $user == admin ]] && echo ',system:masters')"; done >"$work/tokens"
  serve etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
    --listen-peer-urls "http://127.0.0.1:$((port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
    --initial-cluster "default=http://127.0.0.1:$((port + 1))" --unsafe-no-fsync
  serve kube-apiserver --etcd-servers "http://127.0.0.1:$port" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
    --secure-port $((port + 2)) --cert-dir "$work/certificates" --authorization-mode RBAC --token-auth-file "$work/tokens" \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/accounts.key" \
    --service-account-signing-key-file "$work/accounts.key" --service-cluster-ip-range 10.0.0.0/24 --endpoint-reconciler-type none
  {
    echo "{apiVersion: v1, kind: Config, current-context: me, clusters: [{name: here, cluster: {server: 'https://127.0.0.1:$((port + 2))', insecure-skip-tls-verify: true}}],"
    echo " users: ["
    for user in admin me nobody; do echo "  {name: $user, user: {token: $user-token}},"; done
    echo " ], contexts: ["
    for user in admin me nobody; do echo "  {name: $user, context: {cluster: here, user: $user}},"; done
    echo " ]}"
  } >"$work/kubeconfig"
  export KUBECONFIG=$work/kubeconfig
  sed 's/current-context: me/current-context: admin/' "$KUBECONFIG" >"$work/admin"
  manager=(--kubeconfig "$work/admin" --leader-elect=false --bind-address 127.0.0.1 --secure-port 0)
  until_true 60 is_ready || skip "the API server does not come up: $(tail -n 3 "$work/kube-apiserver.log")"
  serve kube-controller-manager "${manager[@]}" --service-account-private-key-file "$work/accounts.key" \
    --controllers job-controller,serviceaccount-controller,resourcequota-controller,garbage-collector-controller,namespace-controller
  serve kube-scheduler "${manager[@]}"
  until_true 60 has_account || skip "the controllers do not come up: $(tail -n 3 "$work/kube-controller-manager.log")"
  for file in "$servers"/crds/*.yaml; do
    [[ -e $file ]] && admin create --filename "$file" >/dev/null
  done
  [[ -z $(admin get crd --output name) ]] || admin wait --for condition=established --timeout 60s crd --all >/dev/null
  give_rights default
  add_node small 2 >/dev/null
}
is_ready() { admin get --raw /readyz >/dev/null 2>&1; }
has_account() { admin get serviceaccount default >/dev/null 2>&1; }

# give_rights NAMESPACE: to the user `me`, what docs/clusters.md says that one needs, and nothing else.
give_rights() {
  local kinds=jobs.batch kind
  for kind in jobsets.jobset.x-k8s.io pytorchjobs.kubeflow.org trainjobs.trainer.kubeflow.org; do
    admin get "$kind" >/dev/null 2>&1 && kinds+=,$kind
  done
  {
    admin --namespace "$1" create role lockstep --verb=create,get,delete --resource="$kinds,services,secrets" &&
      admin --namespace "$1" create role lockstep-watch --verb=get,list --resource=pods,pods/log,events,resourcequotas &&
      admin --namespace "$1" create rolebinding submits --role=lockstep --user=me &&
      admin --namespace "$1" create rolebinding watches --role=lockstep-watch --user=me
  } >/dev/null
}

# add_node NAME GPUS: a node that takes pods, though nothing runs there.
add_node() {
  local amounts="{\"cpu\": \"64\", \"memory\": \"512Gi\", \"pods\": \"110\", \"nvidia.com/gpu\": \"$2\"}"
  printf 'apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n' "$1" | admin apply --filename - &&
    admin patch node "$1" --subresource status --patch "{\"status\": {\"capacity\": $amounts, \"allocatable\": $amounts, \"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}}" &&
    { admin taint node "$1" node.kubernetes.io/not-ready- 2>/dev/null || true; }
}

# pods_of ID: the names of its pods that have not ended.
pods_of() {
  admin get pods --selector "lockstep-job=$1" --field-selector status.phase!=Failed,status.phase!=Succeeded --sort-by .metadata.name --output name
}

# pod_says POD PHASE STATE [CONDITION]: what the kubelet would write. STATE: JSON of the container's state.
pod_says() {
  local conditions='[]' ready=false
  [[ $2 == Running ]] && ready=true
  [[ -n ${4:-} ]] && conditions="[{\"type\": \"$4\", \"status\": \"True\", \"reason\": \"Here\"}]"
  admin patch "$1" --subresource status --patch "{\"status\": {\"phase\": \"$2\", \"conditions\": $conditions, \"containerStatuses\": [{\"name\": \"trainer\", \"image\": \"i\", \"imageID\": \"\", \"restartCount\": 0, \"ready\": $ready, \"state\": $3}]}}"
}
