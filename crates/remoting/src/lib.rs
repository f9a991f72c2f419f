//! RocketMQ remoting over sockets: server and client.
