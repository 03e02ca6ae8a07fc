"""One HTTP exchange with a server: pace, retries, limits of time and bytes, and errors without secrets.

Start with `transport.Transport`, which talks to a relayer; it is a `channel.Channel`, which retries. An exchange
waits for its turn (`pace`) and goes through a `session`; what goes wrong is named in `failures` and `refusals`.
`addresses` checks what is given from outside.
"""
