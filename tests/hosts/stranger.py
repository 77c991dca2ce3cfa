# SPDX-License-Identifier: BSD-3-Clause
"""A process that is not of the job: stranger.py listen FILE, stranger.py attack FILE ADDRESS PORT ...

listen  Reads what goes over this host's interface until it is ended, and writes a line for each thing that it knows:
        "frame PORT BYTES" a frame of a proof (net.h), "tls" a handshake of TLS, "ping" a readable message of control,
        "goodbye" a readable packet of data.
attack  Sends to the ports whatever may get in, from garbage to what was recorded; says "admitted by ..." if something
        does, else "refused".
"""

import os
import random
import socket
import struct
import sys
import time

FRAME, SIGNED = 48, 80  # bytes of a frame of the proof, and with its signature
HELLO, CHALLENGE, PROOF, READY = 1, 2, 3, 4
PACKET = 80  # bytes of a packet's head


def payload(frame):
    """The port and the bytes of a TCP segment in a frame of Ethernet."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return 0, b""
    tcp = 14 + 4 * (frame[14] & 15)
    end = 14 + struct.unpack("!H", frame[16:18])[0]
    return struct.unpack("!H", frame[tcp + 2:tcp + 4])[0], frame[tcp + 4 * (frame[tcp + 12] >> 4):end]


def listen(path):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    with open(path, "w", buffering=1, encoding="ascii") as out:
        out.write("listens\n")
        while True:
            port, said = payload(wire.recv(1 << 17))
            if said.startswith(b"TUNE"):
                out.write(f"frame {port} {said[:SIGNED].hex()}\n")
            elif said[:2] == b"\x16\x03":
                out.write("tls\n")
            elif len(said) == 4 and said[:2] == b"\x04\x00" and said[3] == 1:  # any version
                out.write("ping\n")
            elif len(said) == PACKET and said[1] == 0xff:
                out.write("goodbye\n")


def heard(path):
    """Ports and frames that were recorded: {port: {type: frame}}."""
    frames = {}
    with open(path, encoding="ascii") as lines:
        for words in (line.split() for line in lines if line.startswith("frame ")):
            frame = bytes.fromhex(words[2])
            frames.setdefault(int(words[1]), {}).setdefault(frame[5], frame)
    return frames


def call(address, port):
    try:
        return socket.create_connection((address, port), timeout=5)
    except OSError:
        return None  # the kernel has no room for more: also an answer


def answers(end):
    """All that comes before the other end closes."""
    said = b""
    try:
        while more := end.recv(4096):
            said += more
    except OSError:
        pass
    return said


def converse(address, port, *parts, after=None):
    """What is answered to these parts, and to what `after` makes of the challenge."""
    end = call(address, port)
    if not end:
        return b""
    with end:
        end.settimeout(8)
        try:
            for part in parts:
                end.sendall(part)
            said = b""
            if after:
                while len(said) < SIGNED and (more := end.recv(SIGNED - len(said))):
                    said += more
                if len(said) == SIGNED:
                    end.sendall(after(said))
            return said + answers(end)
        except OSError:
            return b""


def is_in(said):
    """Whether a READY came."""
    return any(said[at:at + 4] == b"TUNE" and said[at + 5] == READY for at in range(0, len(said) - FRAME + 1, SIGNED))


def forged(hello, challenge):
    """A proof by who has no secret, but heard all that is said."""
    return (b"TUNE" + hello[4:5] + bytes([PROOF]) + hello[6:24] + bytes(24) + os.urandom(32)) if challenge else b""


def tries(frames, address, port):
    """Name and answers of each way in that needs what was heard."""
    hello = frames[HELLO][:FRAME]
    fresh = hello[:24] + os.urandom(16) + hello[40:]
    yield "a recorded handshake", converse(address, port, hello, frames.get(PROOF, b""))
    yield "a recorded proof", converse(address, port, hello, after=lambda _: frames.get(PROOF, b"x"))
    yield "a wrong secret", converse(address, port, fresh, after=lambda challenge: forged(hello, challenge))
    yield "a reflection", converse(address, port, fresh, after=lambda challenge: challenge)
    yield "another epoch", converse(address, port, fresh[:16] + os.urandom(8) + fresh[24:],
                                    after=lambda challenge: forged(hello, challenge))
    yield "no secret", converse(address, port, fresh[:7] + b"\0" + fresh[8:],
                                after=lambda challenge: forged(hello, challenge))
    for cut in (1, 5, 30, FRAME - 1):
        end = call(address, port)
        if end:
            end.sendall(hello[:cut])
            end.close()


def flood(address, port, n):
    """Connections that say nothing, or garbage; those that the other end has not closed."""
    kept = []
    for i in range(n):
        end = call(address, port)
        if not end:
            continue
        try:
            if i % 3 == 1:
                end.sendall(random.randbytes(200))
            if i % 3 == 2:
                end.sendall(struct.pack("<I", 0xffffffff) + b"TUMT" + random.randbytes(100))
        except OSError:
            pass
        if i % 2 or len(kept) > 200:
            end.close()
        else:
            kept.append(end)
    return kept


def attack(path, address, ports):
    frames, kept, admitted = heard(path), [], []
    for port in ports:
        kept += flood(address, port, 400)
        if HELLO in frames.get(port, {}):
            admitted += [name for name, said in tries(frames[port], address, port) if is_in(said)]
            print(f"tried what was heard at port {port}", flush=True)
    print("not refused: admitted by " + ", ".join(admitted) if admitted else "refused", flush=True)
    time.sleep(20)  # a silent peer stays as long as it may; the test ends this
    return len(kept)


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2])
    else:
        attack(sys.argv[2], sys.argv[3], [int(port) for port in sys.argv[4:]])
