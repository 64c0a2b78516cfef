"""What bench/compare is made of: the host, child processes, what is measured, what is demanded, how it is shown."""
