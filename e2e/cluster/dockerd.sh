#!/bin/bash
# dockerd.sh start: starts a Docker daemon of our own where none answers.
# dockerd.sh stop:  stops the one that `start` started, and no other.
#
# Its data lies in the cache, so that the node image survives the daemon.
. "$(dirname "$0")/lib.sh"

PID_FILE=$RUN/dockerd.pid
LOG=$CACHE/log/dockerd.log

# A dead daemon may stay a zombie that still takes signals; its executable is gone.
running() {
  local executable
  [ -s "$PID_FILE" ] && executable=$(readlink "/proc/$(cat "$PID_FILE")/exe") && [[ $executable == */dockerd* ]]
}

answers() { timeout 10 docker version >/dev/null 2>&1; }

holds_sys_resource() {
  local bounding
  bounding=$(awk '/^CapBnd:/ { print $2 }' /proc/self/status)
  (((16#$bounding >> 24) & 1))
}

start() {
  local options=(--data-root "$CACHE/docker" --pidfile "$PID_FILE" --storage-driver overlay2)
  if ! holds_sys_resource; then
    install -D -m 755 "$CLUSTER_DIR/node/runc-without-sys-resource" "$CACHE/bin/runc-without-sys-resource"
    options+=(--add-runtime "limited=$CACHE/bin/runc-without-sys-resource" --default-runtime limited)
  fi
  mkdir -p "$RUN" "$CACHE/log"
  rm -f "$PID_FILE" # of a daemon that was killed: its number may belong to anyone by now
  setsid nohup dockerd "${options[@]}" >"$LOG" 2>&1 </dev/null &
  local deadline=$((SECONDS + 60))
  until answers; do
    if [ $SECONDS -ge $deadline ] || ! kill -0 $! 2>/dev/null; then
      tail -n 20 "$LOG"
      echo "dockerd does not answer; its log is $LOG"
      return 1
    fi
    sleep 0.2
  done
}

stop() {
  local pid deadline=$((SECONDS + 30))
  pid=$(cat "$PID_FILE")
  kill "$pid" || true
  while running; do
    if [ $SECONDS -ge $deadline ]; then
      kill -KILL "$pid" || true
      break
    fi
    sleep 0.1
  done
  rm -f "$PID_FILE"
}

case ${1:-} in
  start) answers || step "start dockerd" start ;;
  stop) ! running || step "stop dockerd" stop ;;
  *)
    echo "usage: dockerd.sh start|stop" >&2
    exit 2
    ;;
esac
