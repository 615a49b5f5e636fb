"""State machine of a voice call, as data: the state that outlives connections (`VoiceCall`), the state of one
connection (`ConnectionState`), and the wire format.
"""
