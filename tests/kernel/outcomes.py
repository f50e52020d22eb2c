"""What a snapshot or a restore says of the programs of tests/features and tests/trees, as docs/KERNEL.md has it.

The tests of these programs and the soak read it: what is not here must come back without a word.
"""


class Features:
    # A snapshot of these is refused (exit 14), with these words; then the program goes on.
    REFUSED = {
        "refused_aio_request": ["1 requests of an AIO context"],
        "refused_blocked_all": ["all threads", "block signal 32", "rt_sigprocmask"],
        "refused_blocked_thread": ["thread", "blocks signal 33", "rt_sigprocmask"],
        "refused_cpuid": ["thread", "CPUID"],
        "refused_dispatch": ["Syscall User Dispatch"],
        "refused_ended_process": ["descriptor 5 cannot be looked at"],
        "refused_exit_signal": ["exit signal", "clone", "SIGCHLD only"],
        "refused_flow_label": ["descriptor", "IPV6_FLOWLABEL_MGR"],
        "refused_io_uring": ["descriptor"],
        "refused_ipsec_policy": ["descriptor", "IP_XFRM_POLICY"],
        "refused_landlock": ["Landlock"],
        "refused_local_segments": ["modify_ldt"],
        "refused_lost_name": ["descriptor", "lost the name"],
        "refused_mq_notify": ["descriptor", "mq_notify"],
        "refused_no_room": ["could not be restored", "leaves no room for the launcher"],
        "refused_no_place": ["descriptor", "goes by the name /, which leads to something else"],
        "refused_notify": ["descriptor", "F_NOTIFY"],
        "refused_pressure": ["descriptor", "/proc/pressure"],
        "refused_locked_terminal": ["descriptor", "TIOCSLCKTRMIOS"],
        "refused_path_gone": ["O_PATH", "deleted"],
        "refused_personality": ["thread", "personality"],
        "refused_pidfd_thread": ["descriptor", "PIDFD_THREAD"],
        "refused_process_keyring": ["process keyring"],
        "refused_rdtsc": ["thread", "RDTSC"],
        "refused_reuseport_program": ["descriptor", "SO_ATTACH_REUSEPORT_CBPF"],
        "refused_router_alert": ["descriptor", "IP_ROUTER_ALERT"],
        "refused_router_alert6": ["descriptor", "IPV6_ROUTER_ALERT"],
        "refused_tcp_key": ["descriptor", "TCP_MD5SIG"],
        "refused_tcp_repair": ["descriptor", "TCP_REPAIR"],
        "refused_thread_keyring": ["thread keyring"],
        "refused_time_namespace": ["time namespace for its children"],
        "refused_network": ["network namespace"],
        "refused_seccomp": ["system call filter", "forbids system call 138"],
        "refused_seccomp_thread": ["thread", "system call filter"],
        "refused_seccomp_unseen": ["thread", "system call filter", "gpuckpt does not see"],
        "refused_thread_files": ["thread", "descriptors of its own"],
        "refused_special_socket": ["descriptor", "socket"],
        "refused_unix_left": ["descriptor", "closed at its other end"],
        "refused_unix_waiting": ["descriptor", "has not accepted it yet"],
        "refused_userfaultfd": ["userfaultfd"],
    }
    # What a snapshot of these may tell (exit 3), each line one of the words; nothing else, and nothing of others.
    TOLD = {
        "fd_block_device": "is the block device",
        "fd_half_read": "is in the middle of /proc/",
        "fd_half_read_attribute": "is in the middle of /sys/",
        "fd_inotify_unread": "unread events",
        "fd_kernel_log": "reads the kernel's log",
        "fd_raw": "unread packets",
        "ipc_undo_handler": "has interrupted semop with SEM_UNDO",
        "ipc_undo_set": "since an operation with SEM_UNDO",
        "keyring_session": "session keyring",
        "memory_flags": "is in the middle of /proc/",  # which it reads for longer than a second on a busy machine
        "fd_packet": "unread packets",
        "tcp_halves": "a TCP connection that has failed",
        "socket_errors": "a pending error (SO_ERROR, MSG_ERRQUEUE)",
        "socket_numbered": "numbers its notifications",
        "socket_options": ("unread packets", "numbers its notifications", "more of this kind"),
        "tcp_zerocopy": ("notifications that are not read (MSG_ERRQUEUE)", "numbers its notifications"),
        "socket_unreadable": "which the kernel does not show; a restore leaves it out",
    }
    MUST_TELL = ("fd_block_device", "fd_half_read", "fd_half_read_attribute", "fd_inotify_unread", "fd_kernel_log", "tcp_halves", "ipc_undo_handler", "ipc_undo_set", "keyring_session",
                 "socket_errors", "socket_numbered", "socket_unreadable", "tcp_zerocopy")
    # What a restore cannot give back in a flavour: feature -> why. Listed in docs/LIMITS.md.
    NOT_IN = {
        "nobody": {"id_dumpable": "nobody but root may look at it",
                   "memory_lock_future": "the ring would be locked as well, beyond its limit on locked memory"},
        "sandbox": {"id_dumpable": "nobody but root may look at it",
                    "memory_lock_future": "the ring would be locked as well, beyond its limit on locked memory", "id_numbers": "the ids are new",
                    "fd_epoll_closed": "only kcmp could tell", "fd_epoll_edges": "only kcmp could tell", "fd_passed_kinds": "only kcmp could tell",
                    "thread_rseq_own": "where its area lies could only be asked by ptrace",
                    "socket_names": "a name that is taken needs another root folder", "socket_unread": "no process has the number of a sender that is gone", "thread_cwd": "unshare is not allowed", "timer_posix": "it keeps the number of a thread in a variable of its own"},
    }


class Trees:
    REFUSED = {
        "refused_shares_files": ["table of descriptors", "CLONE_FILES"],
        "refused_shares_folders": ["working directory in common", "neither has it from its parent"],
    }
    TOLD = {"forked_by_thread": "PR_SET_PDEATHSIG", "several_users": "with root's rights", "shared_proc": "a file that the kernel writes", "zombie_dumped": "ended with a core dump"}
    MUST_TELL = ("forked_by_thread", "shared_proc", "zombie_dumped")
    NOT_IN = {}
