# Where Thin itself would listen with a configuration: its own runner and controllers, up to the command that would
# start each server. One fact a line.
require 'thin'

started = []
Thin::Command.singleton_class.define_method(:run) { |_, options| started << options }
Thin::Server.singleton_class.define_method(:new) do |*arguments|
  address, port, options = arguments
  started << options.merge(address: address, port: port, socket: (address if address.start_with?('/')))
  throw :done
end
Thin::Logging.silent = true
runner = Thin::Runner.new(['start', '-C', ARGV[0]])
runner.send(:load_options_from_config_file!)
catch(:done) { runner.run! }
started.each_with_index do |options, number|
  host = options[:address].to_s
  place = options[:socket] ? "unix:#{options[:socket]}" : "tcp:#{host.include?(':') ? "[#{host}]" : host}:#{options[:port]}"
  puts "server #{number} endpoint=#{place}"
  rest = options.reject { |key, _| %i[address port socket pid log config].include?(key) }
  puts "server #{number} #{rest.sort_by { |key, _| key.to_s }}"
end
