#!/bin/sh
# dockerd.sh start|stop STATE_DIR: a private docker engine, for machines on which none answers. Needs root.
#
# Socket, data and logs lie in STATE_DIR; iptables stay untouched (no container needs the outside). gVisor is registered
# as runtime `runsc` where it is installed. `stop` removes its containers, ends the daemon and its bridge.
set -eu
action=$1
state=$2
case $action in
start)
    mkdir -p "$state/data" "$state/exec"
    echo '{}' > "$state/daemon.json"
    if runsc=$(command -v runsc); then
        cat > "$state/daemon.json" <<END
{"runtimes": {"runsc": {"path": "$runsc",
 "runtimeArgs": ["--network=none", "--platform=ptrace", "--ignore-cgroups"]}}}
END
    fi
    nohup dockerd --config-file "$state/daemon.json" --data-root "$state/data" --exec-root "$state/exec" \
        --pidfile "$state/dockerd.pid" -H "unix://$state/docker.sock" \
        --iptables=false --ip6tables=false --ip-masq=false > "$state/dockerd.log" 2>&1 &
    i=0
    until docker -H "unix://$state/docker.sock" info > /dev/null 2>&1; do
        i=$((i + 1))
        if [ $i -gt 150 ]; then tail -20 "$state/dockerd.log" >&2; exit 1; fi
        sleep 0.2
    done ;;
stop)
    [ -e "$state/dockerd.pid" ] || exit 0
    DOCKER_HOST=unix://$state/docker.sock
    export DOCKER_HOST
    docker ps -aq | xargs -r docker rm -f > /dev/null || true
    kill "$(cat "$state/dockerd.pid")" || true
    i=0
    while [ -e "$state/dockerd.pid" ] && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
    ip link del docker0 2> /dev/null || true ;;
*)
    echo "usage: dockerd.sh start|stop STATE_DIR" >&2
    exit 64 ;;
esac
