def run(quick, console):
    pass
